"""Qwen3-TTS's slots on captured graphs: the talker, the first code, then the predictor's stages and draws.

Seeds, settings, penalties and frames are on the device. A step takes three numbers of each text from the
host, which waits for none of its codes. A graph for each number of rows: a few texts do not pay for free
slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from torch_ref.cuda.capture import capture
from torch_ref.cuda.noise import fill_uniform
from torch_ref.cuda.qwen3.step import FusedQwen3, Qwen3State, runs
from torch_ref.cuda.triton import compile_together
from torch_ref.host import Host
from torch_ref.qwen3.qwen3 import Qwen3
from torch_ref.qwen3.slots import Qwen3Slots, embedded
from torch_ref.reading import begin_read, finish_read
from tts_core.nn.noise import HostNoise
from tts_core.qwen3.rows import Launched, Qwen3BatchRows, Qwen3Joining
from tts_core.qwen3.sampling import FIRST


class Qwen3GraphSlots:
    """`texts` slots for texts of at most `room` positions, allocated at once."""

    steps, ahead = 1, 1  # of a launch, and launches before one is read, that keep the device busy

    @torch.inference_mode()
    def __init__(self, network: Qwen3, *, texts: int, room: int):
        self.talker, self.config, self.room = network.talker, network.config, room
        self.host, self.plan = Host(self.talker.codec_head), Qwen3BatchRows(texts)
        device = self.talker.codec_head.weight.device
        self.inputs = torch.zeros(3, texts, dtype=torch.int64, device=device)
        self.seeds = torch.zeros(texts, dtype=torch.int64, device=device)
        self.state = Qwen3State.empty(network, self.inputs, room)
        self.step = step = FusedQwen3(network)  # whose joined weights the graphs read
        self.parts = {rows: self.state.first(rows, self.config) for rows in sizes(texts)}
        compile_together(
            [self._fill, *(call for part in self.parts.values() for call in step.compiling(part))]
        )
        self.graphs = {
            rows: capture(partial(step.run, part), device, again=_nothing)[0]
            for rows, part in self.parts.items()
        }

    @property
    def can_step(self) -> bool:
        """True if a text takes part in the next step."""
        return self.plan.can_step

    @torch.inference_mode()
    def join(self, slot: int, text: Qwen3Joining) -> None:
        """Read what comes before a text's speech but its last row; the next step reads that and draws. Its
        slot must be free.
        """
        talker, rows, count = self.talker, self.state.rows, text.positions - 1
        x, cache = embedded(talker, self.host, text), talker.new_cache()
        talker(x[:, :count], 0, cache)
        memory = self.state.memory
        for keys, values, held in zip(memory.keys, memory.values, cache, strict=True):
            assert held.buffers is not None
            for own, read in zip((keys, values), held.buffers, strict=True):
                own[slot, :, :count] = read[0, :, :count]
        rows.last[slot] = x[0, count]
        rows.seen[slot] = 0
        rows.settings[slot] = self.host.to_device(FIRST.table(text.sampling.numbers))
        if isinstance(text.noise, HostNoise):
            self.seeds[slot] = int(np.uint64(text.noise.seed).astype(np.int64))
        self.plan.join(slot, text)

    def feed(self, slot: int, ids: Sequence[int], *, more: bool) -> None:
        """Append ids to a text that goes on. more: it still does; if not, padding follows them."""
        self.plan.feed(slot, ids, more=more)

    def leave(self, slot: int) -> None:
        """Free a slot. A step that runs already still computes it."""
        self.plan.leave(slot)

    @torch.inference_mode()
    def launch(self, steps: int) -> Launched:
        """Draw a frame of all texts that do not wait; waits for nothing."""
        waiting = self.plan.waiting
        return Launched(begin_read(self._step()[None]), waiting)

    def read(self, launched: Launched) -> np.ndarray:
        """Wait for a launch. → (1, texts, Q) codes; the first is WAITED of a text that waited."""
        return launched.codes(finish_read(launched.reading))

    def _step(self) -> Tensor:
        """Draw the next frame of every text that does not wait. → (texts, Q)."""
        given = np.zeros((3, self.plan.slots), np.int64)
        given[2] = -1
        for slot, text in self.plan.texts.items():
            joining, step = text.joining, text.step
            # a text that has ended may be computed once more, and one that waits writes its place anew
            at = min(joining.positions - 1 + step, self.room - 1)
            read = text.trailing[step - 1 : step] if step else ()
            id = read[0] if read else self.config.tts_pad_id
            given[:, slot] = id, at, -1 if text.waits else step
        self.inputs.copy_(self.host.to_device(given))
        self._fill()
        for slot, text in self.plan.texts.items():
            noise = self.state.rows.noise[slot]
            if not (text.waits or isinstance(text.joining.noise, HostNoise)):
                noise.copy_(self.host.to_device(text.joining.noise.uniform(text.step, tuple(noise.shape))))
        self.graphs[min(rows for rows in self.graphs if rows >= self.plan.count)].replay()
        self.plan.advance()
        return self.state.rows.codes.clone()

    def _fill(self) -> None:
        fill_uniform(self.state.rows.noise[None], self.seeds, self.inputs[2], 0, 1)


def sizes(texts: int) -> list[int]:
    """Return the numbers of rows that have a graph: powers of two, and all."""
    return [*(1 << power for power in range((texts - 1).bit_length())), texts]


def make_slots(network: Qwen3, *, texts: int, room: int) -> Qwen3Slots | Qwen3GraphSlots:
    """Build captured slots where the kernels support the network, else plain ones."""
    return (Qwen3GraphSlots if runs(network) else Qwen3Slots)(network, texts=texts, room=room)


def _nothing() -> None:
    """Undo nothing: what a warm-up writes, a text that joins writes anew."""
