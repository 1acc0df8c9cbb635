"""Slots on one captured graph: the transformer, the actions, then all codes.

The host reads the actions from the middle of the graph, and answers with the text of the next step while the
codes are still being drawn; it never waits for these. What differs between texts is on the device: they join
and leave without a new capture.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import torch
from torch import Tensor

from torch_ref.cuda.capture import capture
from torch_ref.cuda.dia2.draws import Dia2Given
from torch_ref.cuda.dia2.fused_stack import runs
from torch_ref.cuda.dia2.step import Dia2State, FusedDia2
from torch_ref.cuda.early_read import EarlyRead
from torch_ref.cuda.noise import fill_uniform
from torch_ref.cuda.triton import compile_together
from torch_ref.dia2.dia2 import Dia2
from torch_ref.dia2.slots import Dia2Slots
from torch_ref.host import Host
from torch_ref.reading import Reading, begin_read, finish_read
from tts_core.dia2.sampling import SAMPLER
from tts_core.dia2.slots import Dia2Joining, Dia2Text
from tts_core.nn.noise import HostNoise


class Dia2GraphSlots:
    """`texts` slots for texts that read at most `rows` steps, allocated at once.

    guided: unconditional rows run too, after the conditional ones.
    """

    @torch.inference_mode()
    def __init__(self, step: FusedDia2, *, texts: int, rows: int, guided: bool):
        self.step, self.network, self.texts, self.guided = step, step.network, texts, guided
        self.host = Host(self.network.transformer.cb0_head)
        self.state = Dia2State.empty(self.network, texts, rows, guided=guided)
        device = step.heads.device
        self.seeds = torch.zeros(texts, dtype=torch.int64, device=device)
        self.running: dict[int, Dia2Text] = {}  # by slot
        self.drawn: Reading | None = None
        compile_together([*step.compiling(self.state), self._fill])
        self.acted = EarlyRead(self.state.rows.actions)
        self.graph, self.codes = capture(self._run, device, again=_nothing)

    @torch.inference_mode()
    def join(self, slot: int, text: Dia2Joining) -> None:
        """Read a text's prefix and let it begin with the next step; its slot must be free."""
        numbers = SAMPLER.table([text.sampling.action.numbers, text.sampling.audio.numbers])
        self.state.rows.settings[slot] = self.host.to_device(numbers)
        if isinstance(text.noise, HostNoise):
            self.seeds[slot] = int(np.uint64(text.noise.seed).astype(np.int64))
        self.running[slot] = Dia2Text(text)
        if len(text.before):
            self._read_prefix(slot, text.before)

    def leave(self, slot: int) -> None:
        """Free a slot. Unknown ones do nothing. A step that runs already still computes it."""
        self.running.pop(slot, None)

    @torch.inference_mode()
    def act(self, inputs: Mapping[int, np.ndarray]) -> dict[int, int]:
        """Run a step; wait for the actions, but not for the codes."""
        array = np.zeros(Dia2Given.shape(self.network.config.n_streams, self.texts), np.int64)
        given = Dia2Given.of(array)
        given.step[:] = -1
        for slot, text in self.running.items():  # one that waits writes only what its next step writes anew
            given.place[slot], given.position[slot] = text.length, text.joining.start + text.steps
        for slot, tokens in inputs.items():
            given.text[slot], given.second_text[slot], given.codes[:, slot] = *tokens[:2], tokens[2:]
            given.step[slot] = self.running[slot].steps
        self.state.rows.inputs.copy_(self.host.to_device(array))
        self._draw_noise(inputs)
        self.graph.replay()
        self.drawn = begin_read(self.codes)
        for slot in inputs:
            self.running[slot].steps += 1
        actions = self.acted.wait().tolist()
        return {slot: actions[slot] for slot in inputs}

    def draw(self, texts: Mapping[int, tuple[int, int]]) -> tuple[list[int], Reading]:
        """Return the codes that are being drawn, which do not depend on the text."""
        assert self.drawn is not None
        return [*texts], self.drawn

    def read(self, drawn: tuple[list[int], Reading]) -> dict[int, np.ndarray]:
        """Wait for codes. → (Q,) int32 by slot, -1 where logits were not all finite."""
        slots, reading = drawn
        codes = finish_read(reading)
        return {slot: codes[slot] for slot in slots}

    def _draw_noise(self, slots: Iterable[int]) -> None:
        """Draw the numbers of the step."""
        self._fill()
        noise = self.state.rows.noise
        for slot in slots:
            text = self.running[slot]
            if not isinstance(text.joining.noise, HostNoise):
                noise[slot] = self.host.to_device(text.joining.uniform(text.steps, self.network.config))
        noise.log_().neg_().log_()

    def _fill(self) -> None:
        rows = self.state.rows
        fill_uniform(rows.noise[None], self.seeds, Dia2Given.of(rows.inputs).step, 0, 1)

    def _read_prefix(self, slot: int, before: np.ndarray) -> None:
        """Compute keys and values of a prefix's steps. (P, 2 + Q)."""
        config, memory, count = self.network.config, self.state.memory, len(before)
        tokens = self.host.to_device(before)[None].repeat(1 + self.guided, 1, 1)
        tokens[1:, :, 0], tokens[1:, :, 1] = config.text_zero_id, config.text_pad_id
        cache = self.network.transformer.new_cache()
        self.network.transformer(tokens, 0, cache)
        for index, held in enumerate(cache):
            assert held.buffers is not None
            for own, read in zip((memory.keys[index], memory.values[index]), held.buffers, strict=True):
                for copy, rows in enumerate(read):
                    own[copy * self.texts + slot, :, :count] = rows[:, :count]

    def _run(self) -> Tensor:
        projected = self.step.read(self.state)
        self.acted.put(self.state.rows.actions)
        return self.step.codes(self.state, projected)


def _nothing() -> None:
    """Undo nothing: what a warm-up writes, a text that joins writes anew."""


def make_slots(network: Dia2, *, texts: int, rows: int, guided: bool) -> Dia2GraphSlots | Dia2Slots:
    """Make slots in the fastest form that runs this network: captured or plain.

    texts: that run at once.
    rows: steps that a text reads at most.
    guided: some texts may be.
    """
    if runs(network):
        return Dia2GraphSlots(FusedDia2(network), texts=texts, rows=rows, guided=guided)
    return Dia2Slots(network)
