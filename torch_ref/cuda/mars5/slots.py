"""Slots whose steps are captured as CUDA graphs, on kernels."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from torch_ref.cuda.capture import capture
from torch_ref.cuda.mars5.draws import EMPTY, Mars5Draws, draw_id
from torch_ref.cuda.mars5.rows import Mars5Rows, runs
from torch_ref.limits.remedies import at_least_float32
from torch_ref.mars5.codec_lm import CodecLM
from torch_ref.mars5.slots import Mars5Slots
from torch_ref.reading import Reading, begin_read
from tts_core.mars5.rows import Inputs, Mars5Group, Mars5Joining
from tts_core.mars5.sampling import SAMPLER, numbers

PAST = 16  # steps that may be launched past the end of a text


class Mars5GraphSlots(Mars5Slots):
    """Slots whose network is captured as a CUDA graph of all rows."""

    steps, ahead = 4, 1

    def __init__(self, network: CodecLM, *, texts: int, room: int, lowest: int, end: int):
        super().__init__(network, texts=texts, room=room, lowest=lowest, end=end)
        self.grows = False  # the graph keeps addresses
        self._reserve(room)
        device = self.tokens.device
        self.positions = torch.zeros(texts, dtype=torch.int64, device=device)
        self.layers = Mars5Rows(network, self.cache, self.rotary, self.positions, most_few=0)
        with torch.inference_mode():
            # what the warm-up writes, at position 0, each text that joins writes anew
            self.graph, self.computed = capture(self._compute, device, again=lambda: None)

    def leave(self, slot: int) -> None:
        """Free a slot; the graph keeps its memory."""
        self.plan.leave(slot)
        self.first.pop(slot, None)

    def logits(self, positions: np.ndarray) -> Tensor:
        """Compute logits of all rows; the next call overwrites them. positions: of those in use."""
        self.positions.zero_()[: len(positions)] = self.host.to_device(positions).long()
        self.graph.replay()
        return self.computed

    def _compute(self) -> Tensor:
        return at_least_float32(self.layers(self.network.embed(self.tokens)[:, 0].contiguous()))


class KernelSlot(Mars5Slots):
    """A single slot, whose step is a CUDA graph that draws the id and ends with its row.

    It is captured for each text, and freed with it. All state is on the device; noise and ids are copied once
    per launch.
    """

    steps, ahead = 4, 1

    def __init__(self, network: CodecLM, *, texts: int, room: int, lowest: int, end: int):
        assert texts == 1
        super().__init__(network, texts=1, room=room, lowest=lowest, end=end)
        self.grows = False  # the graph keeps addresses
        self.rotary = network.positions(room + PAST)
        self.graph: torch.cuda.CUDAGraph | None = None

    def leave(self, slot: int) -> None:
        """Free the slot, and its memory."""
        super().leave(slot)
        self.__dict__.pop("row", None)
        self.__dict__.pop("state", None)
        self.graph = None

    @torch.inference_mode()
    def launch(self, steps: int) -> Reading:
        """Run some steps; waits for nothing. Past the end of the text's room it runs none.

        Returns a read of (steps, 1) drawn ids: -1 where logits were not all finite.
        """
        [text] = self.plan.texts.values()
        first, joining = text.steps, text.joining
        inputs = [self.plan.step() for _ in range(steps)]
        if first == 0:
            self._begin(joining, text.penalties, inputs[0])
        elif len(joining.prompt.tokens) + first + steps >= self.plan.capacity + PAST:
            return begin_read(self.state.drawn[:steps, None])
        uniform = np.array([one.uniform[0] for one in inputs], np.float32)
        self.state.uniform[first : first + steps].copy_(self.host.to_device(uniform))
        for _ in range(max(first, 1), first + steps):
            graph = self.graph = self.graph or self._captured()
            graph.replay()
        return begin_read(self.state.drawn[first : first + steps, None])

    def _begin(self, text: Mars5Joining, penalties: np.ndarray, inputs: Inputs) -> None:
        """Draw the first id, from the prompt's logits, and build the state after it."""
        weight, vocabulary = self.network.embed.weight, self.network.config.vocab_size
        room, device = self.plan.capacity + PAST, weight.device
        ids = self._draw(self.first.pop(0), inputs, [Mars5Group(text.options, np.zeros(1, np.int64))])
        known = ids.clamp(min=0)
        self.state = Mars5Draws(
            position=torch.full((1,), len(text.prompt.tokens) + 1, device=device),
            count=torch.ones(1, dtype=torch.int64, device=device),
            counts=torch.zeros(vocabulary, dtype=torch.int32, device=device).index_fill_(0, known, 1),
            recent=torch.full((text.window,), EMPTY, dtype=torch.int32, device=device),
            uniform=torch.full((room,), 0.5, device=device),
            penalties=torch.zeros(room, device=device),
            drawn=torch.zeros(room, dtype=torch.int32, device=device),
            row=self.network.embed(known),
            settings=self.host.to_device(SAMPLER.table([numbers(text.options)])),
        )
        self.state.recent[:1] = known
        self.state.drawn[:1] = ids
        self.state.penalties[: len(penalties)] = self.host.to_device(penalties)
        self.row = Mars5Rows(self.network, self.cache, self.rotary, self.state.position, most_few=1)

    def _captured(self) -> torch.cuda.CUDAGraph:
        """Capture a step."""
        before = [tensor.clone() for tensor in self.state]

        def again() -> None:
            for tensor, kept in zip(self.state, before, strict=True):
                tensor.copy_(kept)

        def advance() -> Tensor:
            logits, table = self.row(self.state.row), self.network.embed.weight
            draw_id(logits, table, self.state, lowest=self.lowest, end=self.end)
            return self.state.drawn

        return capture(advance, before[0].device, again=again)[0]


def make_slots(network: CodecLM, *, texts: int, room: int, lowest: int, end: int) -> Mars5Slots:
    """Build captured slots where the kernels support the network, else plain ones."""
    form = Mars5Slots
    if runs(network):
        form = KernelSlot if texts == 1 else Mars5GraphSlots
    return form(network, texts=texts, room=room, lowest=lowest, end=end)
