"""Slots for texts that share the first stage's steps: each joins and leaves between two of them.

A text has its own rows, positions, speaker, sampling and random numbers; its ids are those that it has by
itself.
"""

from __future__ import annotations

import mlx.core as mx
import numpy as np

from mlx_port.host import Host
from mlx_port.layers.row_cache import RowCache, RowPositions
from mlx_port.metavoice.first_stage import FirstStage
from mlx_port.metavoice.guidance import speaker_rows, stacked
from mlx_port.reading import Reading, begin_read, finish_read
from mlx_port.steps.metavoice.drawing import drawing
from mlx_port.steps.metavoice.one_row import fused
from tts_core.metavoice.rows import MetaVoiceBatchRows, MetaVoiceJoining
from tts_core.metavoice.sampling import FirstStageSampling

STEPS_KEPT = 256  # between two times that MLX's unused memory is freed


class MetaVoiceSlots:
    """`texts` slots on `rows` rows of the network, for texts of at most `room` ids.

    end_of_text: the id that replaces text in rows without it. Keys and values are allocated for all rows
    together, as long as there is a text.
    """

    steps, ahead = 1, 1  # of a launch, and launches before one is read, that keep the device busy
    can_step = True  # none of its texts waits

    def __init__(self, network: FirstStage, *, texts: int, rows: int, room: int, end_of_text: int):
        self.network, self.end_of_text = network, end_of_text
        self.one_row = fused(network)
        self.host = Host(network.transformer.wpe)
        self.plan = MetaVoiceBatchRows(texts, rows, room)
        self.at = RowPositions(room)
        self.cache: list[RowCache] = []
        self.groups: list[tuple[FirstStageSampling, mx.array, mx.array]] = []
        self.ticks = 0
        self.tokens = mx.zeros((rows, 1), mx.int32)
        self.speakers = mx.zeros((rows, 1, network.config.hidden_size), network.transformer.wpe.weight.dtype)

    def join(self, slot: int, text: MetaVoiceJoining) -> None:
        """Read a text's ids but the last and let it start with the next step; its slot must be free."""
        rows, self.groups = self.plan.join(slot, text), []
        self.cache = self.cache or self.new_cache()
        tokens = stacked(self.host.to_device(text.ids[None]), text.sampling, self.end_of_text)
        speakers = speaker_rows(self.network, self.host.to_device(text.vector[None]), text.sampling)
        before = len(text.ids) - 1
        if before:
            cache = self.network.new_cache(before)
            self.network.transformer(tokens[:, :before], speakers, cache)
            for layer, held in zip(self.cache, cache, strict=True):
                assert held.buffers is not None
                for row, keys, values in zip(rows, *held.buffers, strict=True):
                    layer.fill(row, keys, values)
        self.tokens[mx.array(rows)] = tokens[:, before:].astype(mx.int32)
        self.speakers[mx.array(rows)] = speakers

    def leave(self, slot: int) -> None:
        """Free a slot and its rows; with the last one the memory of keys and values."""
        self.plan.leave(slot)
        self.groups = []
        if not self.plan.texts:
            self.cache = []

    def new_cache(self) -> list[RowCache]:
        """Allocate keys and values of every layer."""
        mx.clear_cache()
        config, dtype = self.network.config, self.network.transformer.wpe.weight.dtype
        shape = self.plan.rows, config.num_attention_heads, self.plan.capacity, config.head_dim
        layers = self.network.transformer.h
        return [RowCache(mx.zeros(shape, dtype), mx.zeros(shape, dtype), self.at) for _ in layers]

    def launch(self, steps: int) -> Reading:
        """Run some steps of all texts; waits for nothing. There must be a text.

        Returns a read of (steps, texts) drawn ids: -1 where logits were not all finite, 0 in free slots.
        """
        drawn = []
        for _ in range(steps):
            drawn.append(self.step())
            self.plan.advance()
        return begin_read(mx.stack(drawn))

    def read(self, launched: Reading) -> np.ndarray:
        """Wait for a launch. → (steps, texts) ids."""
        return finish_read(launched)

    def step(self) -> mx.array:
        """Draw the next id of every text, which the next step reads. → (texts,)."""
        if self.ticks % STEPS_KEPT == 0:
            mx.clear_cache()
        self.ticks += 1
        logits, waiting = self.logits(), self.waiting()
        ids = mx.zeros(self.plan.slots, mx.int32)
        to_device = self.host.to_device
        self.groups = self.groups or [
            (sampling, to_device(slots), to_device(rows)) for sampling, slots, rows in self.plan.groups()
        ]
        for sampling, at, own in self.groups:
            made = drawing(sampling)(logits[own], *(() if sampling.greedy else (waiting[at],)))
            ids[at] = made
            following = stacked(mx.maximum(made, 0)[:, None], sampling, self.end_of_text)
            self.tokens[own] = mx.unflatten(following, 0, own.shape)
        return ids

    def waiting(self) -> mx.array:
        """Waiting times of every slot's draw, (texts, V) float32."""
        return self.host.to_device(self.plan.waiting(self.network.config.vocab_size))

    def logits(self) -> mx.array:
        """Compute logits of the rows in use, (R, V) float32."""
        level, count = self.plan.level(), self.plan.count
        if level is None:
            positions = self.plan.positions()
            self.at.move(self.host.to_device(positions), int(positions.max()) + 1)
        else:
            self.at.level(level)
        return self.one_row.next_logits(self.tokens[:count], self.speakers[:count], self.cache)
