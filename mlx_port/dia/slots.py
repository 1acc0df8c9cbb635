"""Slots for texts that decode in parallel: one step for all, which each text joins and leaves.

A step takes the last row and the end of each text from the device, so the next one is built and submitted
while the last one runs. Positions are known to the host. Draws are read late.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import mlx.core as mx
import numpy as np

from mlx_port.dia.dia import Dia
from mlx_port.kernels.noise import trial, uniform
from mlx_port.kernels.source import passes
from mlx_port.steps.dia.drawing import accepting, drawing
from mlx_port.steps.dia.fused import DecoderMemory, fused
from tts_core.dia.grid import FREE
from tts_core.dia.joining import DiaJoining
from tts_core.dia.sampling import DiaSampling
from tts_core.nn.noise import HostNoise

STEPS_KEPT = 256  # between two times that MLX's unused memory is freed


class DiaSlots:
    """B slots for texts of at most `text_rows` bytes and `rows` grid rows, allocated at once.

    nothing: (1, 1, source width), the encoding of the empty text; None without guidance.
    """

    steps, ahead = 1, 1  # of a launch, and launches before one is read, that keep the device busy
    can_step = True  # no text waits

    def __init__(self, network: Dia, nothing: mx.array | None, *, texts: int, rows: int, text_rows: int):
        self.network, self.decoder = network, fused(network, nothing)
        self.texts, self.guided, self.ticks = texts, nothing is not None, 0
        config = self.network.config
        self._empty = partial(
            DecoderMemory.empty, self.network, texts, rows - 1, text_rows, guided=self.guided
        )
        self.memory = self._empty()
        channels = config.decoder_config.num_channels
        self.shape = channels, config.decoder_config.vocab_size
        self.last_row = rows - 1
        self.running: list[DiaJoining | None] = [None] * texts
        self.filled = np.ones(texts, np.int32)  # rows that are known
        self.bounds = np.zeros((texts, 2), np.int32)  # frames of each prompt, and of its speech at most
        self.tokens = mx.zeros((texts, channels), mx.int32)  # the last known row of each text
        self.ends = mx.full((texts, channels), -1)
        self.free_row = mx.full((texts, channels), FREE)
        self.accept = accepting(config)
        mx.async_eval(self.tokens, self.ends, self.free_row)

    def join(self, slot: int, text: DiaJoining) -> None:
        """Read a text and let it start with the next step; its slot must be free."""
        self._read(slot, text)
        self.running[slot] = text
        self.filled[slot] = text.filled
        self.bounds[slot] = text.prompt_frames, text.max_frames
        self.tokens[slot] = mx.array(text.grid[text.filled - 1])
        self.ends[slot] = -1

    def leave(self, slot: int) -> None:
        """Free a slot, and all memory with the last. Steps that run already still compute it."""
        self.running[slot] = None
        if not any(self.running):
            self.memory = self._empty()  # zeros that nothing has computed take none

    def launch(self, steps: int) -> list[mx.array]:
        """Run some steps; waits for nothing. → the ids of each, (B, C) int32, -1 where logits were not all
        finite.
        """
        return [self._step() for _ in range(steps)]

    def read(self, launched: Sequence[mx.array]) -> np.ndarray:
        """Wait for a launch. → (steps, B, C) int32."""
        return np.stack([np.array(ids) for ids in launched])

    def _step(self) -> mx.array:
        taken = [slot for slot, text in enumerate(self.running) if text is not None]
        self._follow(taken)
        logits = self.decoder.logits(self.tokens, self.filled - 1, self.memory)
        ids = self._draw(logits.reshape(self.decoder.copies, self.texts, *self.shape), taken)
        numbers = np.stack([self.filled, *self.bounds.T])[:, :, None]
        wide = np.broadcast_to(numbers, (3, *self.tokens.shape))  # one launch takes arrays of one shape
        self.tokens, self.ends = self.accept(ids, self.ends, self._forced(taken), mx.array(wide))
        mx.async_eval(ids, self.tokens, self.ends)
        self.filled = np.minimum(self.filled + 1, self.last_row)  # rows past the grid's end are dropped
        self.ticks += 1
        if self.ticks % STEPS_KEPT == 0:
            mx.clear_cache()
        return ids

    def _follow(self, taken: Sequence[int]) -> None:
        """Give free slots the position and length of the first text, so that equal ones stay equal."""
        if taken:
            free = [text is None for text in self.running]
            self.filled[free], self.memory.lengths[free] = (
                self.filled[taken[0]],
                self.memory.lengths[taken[0]],
            )

    def _draw(self, logits: mx.array, taken: Sequence[int]) -> mx.array:
        """Draw the next row of each text, texts of equal settings together. → (B, C) int32."""
        config, groups = self.network.config, dict[DiaSampling, list[int]]()
        for slot in taken:
            groups.setdefault(self._text(slot).sampling, []).append(slot)
        if not groups:
            return self.free_row
        numbers = self._uniform(taken)
        found = [
            (slots, drawing(sampling, eos=config.eos_token_id, cross_rope=config.cross_rope))
            for sampling, slots in groups.items()
        ]
        if len(found) == 1:
            return found[0][1](logits, numbers)
        ids = self.free_row
        for slots, ids_of in found:
            place = mx.array(slots)
            ids = mx.put_along_axis(ids, place[:, None], ids_of(logits[:, place], numbers[place]), axis=0)
        return ids

    def _uniform(self, taken: Sequence[int]) -> mx.array:
        """Draw uniform numbers, (B, C, V) float32. A text inside its prompt draws nothing from its source."""
        texts = {slot: self._text(slot) for slot in taken}
        steps = {slot: max(0, int(self.filled[slot] - 1 - self.bounds[slot, 0])) for slot in taken}
        noise = {slot: text.noise for slot, text in texts.items() if text.sampling.temperature}
        seeds = {slot: one.seed for slot, one in noise.items() if isinstance(one, HostNoise)}
        if len(seeds) == len(noise) and passes(trial):
            every = range(self.texts)
            return uniform([seeds.get(i, 0) for i in every], [steps.get(i, 0) for i in every], self.shape)
        numbers = np.full((self.texts, *self.shape), 0.5, np.float32)
        for slot, one in noise.items():
            if self.filled[slot] > self.bounds[slot, 0]:
                numbers[slot] = one.uniform(steps[slot], self.shape)
        return mx.array(numbers)

    def _forced(self, taken: Sequence[int]) -> mx.array:
        """Return forced ids of the next row of each text, else FREE. (B, C)."""
        rows = np.full((self.texts, self.shape[0]), FREE, np.int32)
        for slot in taken:
            grid = self._text(slot).grid
            if self.filled[slot] < len(grid):
                rows[slot] = grid[self.filled[slot]]
        return self.free_row if (rows == FREE).all() else mx.array(rows)

    def _text(self, slot: int) -> DiaJoining:
        text = self.running[slot]
        assert text is not None
        return text

    def _read(self, slot: int, text: DiaJoining) -> None:
        """Compute keys and values of a text, and of the rows before the last known one."""
        memory, count = self.memory, len(text.tokens)
        source = self.network.read([mx.array(text.tokens)])._replace(unconditional=self.decoder.constants)
        for index, (keys, values) in enumerate(zip(source.keys, source.values, strict=True)):
            memory.source_keys[index][slot, :, :count] = keys[0]
            memory.source_values[index][slot, :, :count] = values[0]
        memory.lengths[slot] = count
        before = text.filled - 1
        if not before:
            return
        rows = mx.array(text.grid[None, :before])
        cache = self.network.new_cache()
        self.network.model.decoder(mx.concatenate([rows, rows]) if self.guided else rows, cache, source)
        places = [slot, self.texts + slot] if self.guided else [slot]
        for index, held in enumerate(cache):
            assert held.buffers is not None
            for one, place in enumerate(places):
                for which, buffer in enumerate(held.buffers):
                    memory.own[index][which, place, :, :before] = buffer[one, :, :before]
