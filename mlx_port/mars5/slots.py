"""Slots for texts that share the autoregressive network's steps: each joins and leaves between two of them.

Upstream: Camb-ai/MARS5-TTS@84697c8 (AGPL-3.0); written from a description, none of its code was used.
Differs from upstream, which runs one text: a text has its own row, position, speaker, sampling and random
numbers; its ids are those that it has by itself.
"""

from __future__ import annotations

import mlx.core as mx
import numpy as np

from mlx_port.host import Host
from mlx_port.layers.row_cache import RowCache, RowPositions
from mlx_port.layers.spin import Spins
from mlx_port.mars5.codec_lm import CodecLM
from mlx_port.mars5.one_row import fused
from mlx_port.mars5.step import draw_ids
from mlx_port.reading import Reading, begin_read, finish_read
from tts_core.mars5.rows import BatchRows, Joining


class Slots:
    """`texts` slots, each a row of the network with `room` positions for speaker and ids; allocated at once.

    lowest, end: ids of CodecVocabulary.
    """

    steps, ahead = 1, 1  # of a launch, and launches before one is read, that keep the device busy

    def __init__(self, network: CodecLM, *, texts: int, room: int, lowest: int, end: int):
        self.network, self.lowest, self.end = network, lowest, end
        self.host = Host(network.embed)
        self.plan = BatchRows(texts, room)
        self.at = RowPositions(min(network.config.sliding_window, room))
        config, dtype = network.config, network.embed.weight.dtype
        buffer = texts, config.num_attention_heads, self.at.capacity, config.head_dim
        self.cache = [
            RowCache(mx.zeros(buffer, dtype), mx.zeros(buffer, dtype), self.at) for _ in network.ar.layers
        ]
        self.one_row, self.rotary = fused(network), network.positions(room)
        self.spins = Spins(self.rotary(0, room))
        self.tokens = mx.zeros((texts, 1), mx.int32)
        # last ids of each text, a ring; the vocabulary's size is an empty place
        self.recent = self._nothing(1)

    def join(self, slot: int, text: Joining) -> None:
        """Read a text's prompt but its last id and let it start with the next step; its slot must be free.

        The prompt must fit in the sliding window.
        """
        assert len(text.prompt.tokens) <= self.network.config.sliding_window
        self.plan.join(slot, text)
        network, prompt = self.network, self.host.to_device(text.prompt.tokens[None])
        speaker = network.speaker(self.host.to_device(text.codes.T[None]))
        rows = network.rows(speaker, prompt[:, :-1])
        cache = network.new_cache(rows.shape[1])
        network.ar(rows, self.rotary(0, rows.shape[1]), cache)
        for layer, held in zip(self.cache, cache, strict=True):
            assert held.buffers is not None
            layer.fill(slot, held.buffers[0][0], held.buffers[1][0])
        self.tokens[slot] = prompt[0, -1:]
        if text.window > self.recent.shape[1]:
            wider = self._nothing(text.window)
            wider[:, : self.recent.shape[1]] = self.recent
            self.recent = wider
        self.recent[slot] = network.config.vocab_size

    def leave(self, slot: int) -> None:
        """Free a slot."""
        self.plan.leave(slot)

    def launch(self, steps: int) -> Reading:
        """Run some steps of all texts; waits for nothing. There must be a text.

        Returns a read of (steps, texts) drawn ids: -1 where logits were not all finite, 0 in free slots.
        """
        plan, vocabulary, drawn = self.plan, self.network.config.vocab_size, []
        groups = [(options, self.host.to_device(slots)) for options, slots in plan.groups()]
        for _ in range(steps):
            inputs = plan.step()
            logits = self.logits(inputs.positions)
            place, repeats, penalty, uniform = map(self.host.to_device, inputs[1:])
            ids = mx.zeros(plan.slots, mx.int32)
            for options, slots in groups:
                seen = mx.where(repeats[slots, None], self.recent[slots], vocabulary)
                ids[slots] = draw_ids(
                    logits[slots],
                    seen,
                    penalty[slots, None],
                    uniform[slots, None],
                    options,
                    lowest=self.lowest,
                    end=self.end,
                )
                self.recent[slots, place[slots]] = mx.maximum(ids[slots], 0)
                self.tokens[slots] = mx.maximum(ids[slots], 0)[:, None]
            drawn.append(ids)
        return begin_read(mx.stack(drawn))

    def read(self, launched: Reading) -> np.ndarray:
        """Wait for a launch. → (steps, texts) ids."""
        return finish_read(launched)

    def logits(self, positions: np.ndarray) -> mx.array:
        """Compute logits of the rows in use, (R, V) float32. positions: (R,) int32."""
        seen = min(int(positions.max()) + 1, self.at.capacity)
        self.at.move(self.host.to_device(positions), seen)
        return self.one_row.next_logits(self.tokens[: len(positions)], self.spins(positions), self.cache)

    def _nothing(self, window: int) -> mx.array:
        """Build empty places for `window` ids of each text."""
        shape, vocabulary = (self.plan.slots, window), self.network.config.vocab_size
        return mx.full(shape, vocabulary, mx.int32)


def make_slots(network: CodecLM, *, texts: int, room: int, lowest: int, end: int) -> Slots:
    """Build the only form of the slots."""
    return Slots(network, texts=texts, room=room, lowest=lowest, end=end)
