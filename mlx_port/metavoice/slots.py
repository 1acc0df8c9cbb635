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
from mlx_port.metavoice.one_row import fused
from mlx_port.metavoice.step import draw_ids, speaker_rows, stacked
from mlx_port.reading import Reading, begin_read, finish_read
from tts_core.metavoice.rows import BatchRows, Joining
from tts_core.metavoice.sampling import FirstStageSampling


class Slots:
    """`texts` slots on `rows` rows of the network, for texts of at most `room` ids, allocated at once.

    end_of_text: the id that replaces text in rows without it.
    """

    steps, ahead = 1, 1  # of a launch, and launches before one is read, that keep the device busy

    def __init__(self, network: FirstStage, *, texts: int, rows: int, room: int, end_of_text: int):
        self.network, self.end_of_text = network, end_of_text
        self.one_row = fused(network)
        self.host = Host(network.transformer.wpe)
        self.plan = BatchRows(texts, rows, room)
        self.at = RowPositions(room)
        config, dtype = network.config, network.transformer.wpe.weight.dtype
        buffer = rows, config.num_attention_heads, room, config.head_dim
        self.cache = [
            RowCache(mx.zeros(buffer, dtype), mx.zeros(buffer, dtype), self.at) for _ in network.transformer.h
        ]
        self.tokens = mx.zeros((rows, 1), mx.int32)
        self.speakers = mx.zeros((rows, 1, config.hidden_size), dtype)

    def fits(self, sampling: FirstStageSampling) -> bool:
        """Return whether there are a slot and rows for a text with this sampling."""
        return self.plan.fits(sampling)

    def join(self, slot: int, text: Joining) -> None:
        """Read a text's ids but the last and let it start with the next step; its slot must be free."""
        rows = self.plan.join(slot, text)
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
        """Free a slot and its rows."""
        self.plan.leave(slot)

    def launch(self, steps: int) -> Reading:
        """Run some steps of all texts; waits for nothing. There must be a text.

        Returns a read of (steps, texts) drawn ids: -1 where logits were not all finite, 0 in free slots.
        """
        plan, vocabulary, drawn = self.plan, self.network.config.vocab_size, []
        groups = [(one.sampling, *map(self.host.to_device, one[1:])) for one in plan.groups()]
        for _ in range(steps):
            logits, waiting = self.logits(), self.host.to_device(plan.waiting(vocabulary))
            ids = mx.zeros(plan.slots, mx.int32)
            for sampling, slots, rows in groups:
                made = draw_ids(logits[rows], None if sampling.greedy else waiting[slots], sampling)
                ids[slots] = made
                following = stacked(mx.maximum(made, 0)[:, None], sampling, self.end_of_text)
                self.tokens[rows] = mx.unflatten(following, 0, (-1, len(slots)))
            drawn.append(ids)
            plan.advance()
        return begin_read(mx.stack(drawn))

    def read(self, launched: Reading) -> np.ndarray:
        """Wait for a launch. → (steps, texts) ids."""
        return finish_read(launched)

    def logits(self) -> mx.array:
        """Compute logits of the rows in use, (R, V) float32."""
        positions, count = self.plan.positions(), self.plan.count
        self.at.move(self.host.to_device(positions), int(positions.max()) + 1)
        return self.one_row.next_logits(self.tokens[:count], self.speakers[:count], self.cache)


def make_slots(network: FirstStage, *, texts: int, rows: int, room: int, end_of_text: int) -> Slots:
    """Build the only form of the slots."""
    return Slots(network, texts=texts, rows=rows, room=room, end_of_text=end_of_text)
