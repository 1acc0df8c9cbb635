"""One step of MARS5's autoregressive network for one text: a uniform number in, the next id out."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from torch_ref.cuda.capture import capture
from torch_ref.mars5.codec_lm import CodecLM
from torch_ref.mars5.draws import EMPTY, Drawing, draw_id
from torch_ref.mars5.row import FusedRow, PlainRow, runs
from torch_ref.mars5.sampling import draw, log_probabilities, occurrences
from torch_ref.reading import Reading, begin_read, finish_read
from tts_core.mars5.options import Mars5Options
from tts_core.mars5.sampling import PENALTIES_ABOVE, end_penalties
from tts_core.mars5.sequence import CodecSequence

STEPS = 4  # between two reads of ids
MARK = -1  # replaces an id drawn from NaN or infinite logits
Draw = Callable[[Tensor, Tensor], Tensor]


class _Pending(NamedTuple):
    """An id being copied to the host: its index there, and the event of its arrival."""

    place: int
    arrived: torch.cuda.Event | None


PendingId = Tensor | _Pending | int  # an id that may not have arrived yet, (1,), or its place


def draw_ids(
    logits: Tensor,
    seen: Tensor,
    penalty: Tensor,
    uniform: Tensor,
    options: Mars5Options,
    *,
    lowest: int,
    end: int,
    choose: Draw = draw,
) -> Tensor:
    """Draw an id from each row of logits, (B, V) → (B,); -1 where they are not all finite.

    seen: (B, N) ids whose repetition is penalized.  penalty, uniform: one number, or one per row, (B, 1).
    """
    counts = occurrences(seen, logits.shape[-1])
    scores = log_probabilities(logits, counts, penalty, options, lowest=lowest, end=end)
    return choose(scores, uniform).masked_fill(~logits.isfinite().all(dim=-1), MARK)


class Step:
    """The plain form: every operation is launched from Python.

    The first call processes the prompt, each later one the last drawn id. Calls do not wait for the device.
    """

    ahead = 0  # steps launched before an id is read

    def __init__(
        self,
        network: CodecLM,
        speaker: Tensor,
        sequence: CodecSequence,
        options: Mars5Options,
        choose: Draw = draw,
    ):
        """speaker: (1, D).  sequence: empty; its prompt is read.  choose: a function like `sampling.draw`."""
        self.network, self.speaker, self.options, self.choose = network, speaker, options, choose
        self.lowest, self.end = sequence.vocabulary.lowest, sequence.vocabulary.end
        device = speaker.device
        self.prompt = torch.from_numpy(sequence.prompt.tokens).to(device)[None]
        self.cache = network.new_cache(sequence.max_len)
        self.rotary = network.positions(sequence.max_len)
        penalties = end_penalties(options, sequence.prompt.expected_tokens, sequence.room)
        self.penalties = torch.from_numpy(penalties).to(device)
        self.window = min(options.rep_penalty_window, sequence.room)
        self.recent = self.prompt[:, :0]
        self.position, self.generated = 0, 0

    def __call__(self, uniform: float) -> PendingId:
        """Draw the next id, for `read`; -1 if its logits are not all finite."""
        network = self.network
        rows = (
            network.embed(self.recent[:, -1:]) if self.generated else network.rows(self.speaker, self.prompt)
        )
        rotation = self.rotary(self.position, rows.shape[1])
        logits = network.next_logits(rows, rotation, self.cache)
        seen = self.recent[:, -self.window :] if self.generated > PENALTIES_ABOVE else self.recent[:, :0]
        number = torch.full((1,), uniform, dtype=logits.dtype, device=logits.device)
        ids = self.drawn(logits, seen, self.penalties[self.generated], number)
        self.recent = torch.cat((self.recent, ids[:, None].clamp(min=0)), dim=1)[:, -self.window :]
        self.position += rows.shape[1]
        self.generated += 1
        return ids

    def drawn(self, logits: Tensor, seen: Tensor, penalty: Tensor, uniform: Tensor) -> Tensor:
        """Draw an id from logits. (1, V); seen: (1, N) ids whose repetition is penalized → (1,)."""
        return draw_ids(
            logits, seen, penalty, uniform, self.options, lowest=self.lowest, end=self.end, choose=self.choose
        )

    def read(self, ids: PendingId) -> int:
        """Wait for the result of a call."""
        assert isinstance(ids, Tensor)
        return int(ids.item())


class GraphStep(Step):
    """The step captured as a CUDA graph, sampling included: one launch and one read per id.

    For networks and draws that KernelStep does not take.

    The first call, on the prompt, is not captured. Then all state of a step is on the device, so that the
    next step is launched before the last id is read: the device never waits for Python.
    """

    ahead = 1

    def __init__(
        self,
        network: CodecLM,
        speaker: Tensor,
        sequence: CodecSequence,
        options: Mars5Options,
        choose: Draw = draw,
    ):
        super().__init__(network, speaker, sequence, options, choose)
        self.graph: torch.cuda.CUDAGraph | None = None
        pinned = speaker.is_cuda
        self.sent = torch.empty(sequence.room, dtype=torch.float32, pin_memory=pinned)
        self.received = torch.empty(sequence.room, dtype=torch.long, pin_memory=pinned)

    def __call__(self, uniform: float) -> _Pending:
        if self.generated == 0:
            first = super().__call__(uniform)
            assert isinstance(first, Tensor)
            return self._post(first, 0)
        count = self.generated
        if self.graph is None:
            self.graph, self.ids = self._captured()
        self.sent[count] = uniform
        self.uniform.copy_(self.sent[count : count + 1], non_blocking=True)
        self.graph.replay()
        self.generated += 1
        return self._post(self.ids, count)

    def read(self, ids: PendingId) -> int:
        assert isinstance(ids, _Pending)
        if ids.arrived is not None:
            ids.arrived.synchronize()
        return int(self.received[ids.place])

    def _post(self, ids: Tensor, place: int) -> _Pending:
        """Copy an id to the host, after its own step and before any later one."""
        self.received[place : place + 1].copy_(ids, non_blocking=True)
        if not ids.is_cuda:
            return _Pending(place, None)
        arrived = torch.cuda.Event()
        arrived.record()
        return _Pending(place, arrived)

    def _captured(self) -> tuple[torch.cuda.CUDAGraph, Tensor]:
        """Move all changing state to the device and capture the step. Returns its graph and its ids."""
        device, vocab_size = self.speaker.device, self.network.config.vocab_size
        self.token = self.recent[:, -1:].long()
        self.seen = torch.full((1, self.window), vocab_size, device=device)  # a ring; that value is empty
        self.seen[:, : self.recent.shape[1]] = self.recent
        self.at = torch.tensor([self.position], device=device)
        self.count = torch.tensor([self.generated], device=device)
        self.uniform = torch.zeros(1, device=device)
        self.row = PlainRow(self.network, self.cache, self.rotary, self.at)
        state = self.token, self.seen, self.at, self.count
        before = [tensor.clone() for tensor in state]

        def again() -> None:
            for tensor, kept in zip(state, before, strict=True):
                tensor.copy_(kept)

        return capture(self._advance, device, again=again)

    def _advance(self) -> Tensor:
        """Run one step, entirely on the device. → (1,) ids."""
        logits = self.row(self.network.embed(self.token))
        nothing = self.network.config.vocab_size
        seen = torch.where(self.count > PENALTIES_ABOVE, self.seen, nothing)
        ids = self.drawn(logits, seen, self.penalties[self.count], self.uniform)
        self.token.copy_(ids.clamp(min=0)[:, None])
        self.seen.index_copy_(1, self.count % self.window, self.token)
        self.at.add_(1)
        self.count.add_(1)
        return ids


class KernelStep(Step):
    """The step on kernels, captured as a CUDA graph that ends with the next step's row.

    The first call, on the prompt, is not captured. Then all state is on the device, noise and ids are copied
    once per group, and a group is launched before the ids of the last one are read.
    """

    ahead = 2 * STEPS - 1

    def __init__(
        self,
        network: CodecLM,
        speaker: Tensor,
        sequence: CodecSequence,
        options: Mars5Options,
        choose: Draw = draw,
    ):
        super().__init__(network, speaker, sequence, options, choose)
        self.rotary = network.positions(sequence.max_len + STEPS)  # a group may pass the end
        self.sent = np.full(1 + -(-sequence.room // STEPS) * STEPS, 0.5, np.float32)
        self.groups: list[Reading] = []
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, uniform: float) -> int:
        """Note a number for the next id and launch a group of steps once it is complete. → the id's place."""
        place, self.sent[self.generated] = self.generated, uniform
        if place == 0:
            first = super().__call__(uniform)
            assert isinstance(first, Tensor)
            self.state = self._moved(first)
            self.groups.append(begin_read(first))
        else:
            self.generated += 1
            if place % STEPS == 0:
                self._launch()
        return place

    def read(self, ids: PendingId) -> int:
        assert isinstance(ids, int)
        group, item = (0, 0) if ids == 0 else divmod(ids - 1 + STEPS, STEPS)
        if group == len(self.groups):
            self._launch()
        return int(finish_read(self.groups[group])[item])

    def _launch(self) -> None:
        first = 1 + (len(self.groups) - 1) * STEPS
        numbers = torch.from_numpy(self.sent[first : first + STEPS])
        if self.graph is None:
            self.graph = self._captured()
        device = self.state.uniform.device
        self.state.uniform[first : first + STEPS].copy_(
            (numbers.pin_memory() if device.type == "cuda" else numbers).to(device, non_blocking=True)
        )
        for _ in range(STEPS):
            self.graph.replay()
        self.groups.append(begin_read(self.state.drawn[first : first + STEPS]))

    def _moved(self, first: Tensor) -> Drawing:
        """Move all changing state to the device, after the first id."""
        device, vocab_size, room = first.device, self.network.config.vocab_size, len(self.sent)
        recent = torch.full((self.window,), EMPTY, dtype=torch.int32, device=device)
        recent[0] = first.clamp(min=0)[0]
        penalties = torch.zeros(room, device=device)
        penalties[: len(self.penalties)] = self.penalties
        return Drawing(
            position=torch.tensor([self.position], device=device),
            count=torch.tensor([self.generated], device=device),
            counts=torch.zeros(vocab_size, dtype=torch.int32, device=device).index_fill_(
                0, recent[:1].long(), 1
            ),
            recent=recent,
            uniform=torch.full((room,), 0.5, device=device),
            penalties=penalties,
            drawn=torch.zeros(room, dtype=torch.int32, device=device),
            row=self.network.embed(first.clamp(min=0)),
        )

    def _captured(self) -> torch.cuda.CUDAGraph:
        """Capture a step."""
        self.row = FusedRow(self.network, self.cache, self.rotary, self.state.position)
        before = [tensor.clone() for tensor in self.state]

        def again() -> None:
            for tensor, kept in zip(self.state, before, strict=True):
                tensor.copy_(kept)

        return capture(self._advance, before[0].device, again=again)[0]

    def _advance(self) -> Tensor:
        logits = self.row.logits(self.state.row)
        table = self.network.embed.weight
        draw_id(logits, table, self.state, self.options, lowest=self.lowest, end=self.end)
        return self.state.drawn


def make_step(
    network: CodecLM,
    speaker: Tensor,
    sequence: CodecSequence,
    options: Mars5Options,
    choose: Draw = draw,
) -> Step:
    """Build the fastest form of the step for the network's device."""
    form = Step
    if speaker.is_cuda:
        form = KernelStep if choose is draw and runs(network) else GraphStep
    return form(network, speaker, sequence, options, choose)
