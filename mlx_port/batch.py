"""A running batch: texts that share the steps of one network, each joining and leaving between two of them.

A text has its own rows, positions, settings and random numbers; its ids are those that it has by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import mlx.core as mx
import numpy as np

from mlx_port.kernels.noise import trial, uniform
from mlx_port.kernels.source import passes
from mlx_port.layers.cache import CHUNK
from mlx_port.layers.row_cache import RowCache, RowPositions
from mlx_port.reading import Reading, begin_read, finish_read
from mlx_port.runtime.switches import kind_of_keys
from tts_core.memory.footprint import TOGETHER
from tts_core.speaking.decoder import BatchDecoder, TextRead
from tts_core.speaking.rows import BatchRows, Draws, Launched, TextInputs, mapped

STEPS_BETWEEN = 256  # between two times that MLX's unused memory is freed


class RunningBatch:
    """Slots for `texts` texts of at most `capacity` positions. Keys and values grow with the longest text and
    with the texts that are there, and are freed with the last one.
    """

    together = TOGETHER

    def __init__(self, decoder: BatchDecoder, *, texts: int, capacity: int):
        self.decoder, self.host = decoder, decoder.host
        self.rows = BatchRows(texts, capacity, is_exact=decoder.is_exact)
        self.steps, self.ahead, self.ticks = decoder.steps, decoder.ahead, 0
        self.at = RowPositions(capacity if decoder.window is None else min(decoder.window, capacity))
        self.caches: list[RowCache] = []
        self.copies = 1  # rows of each text that have keys
        self.state: Any = ()
        self.known: dict[int, mx.array] = {}  # by slot, what texts draw from that have only been read

    @property
    def can_step(self) -> bool:
        """True if a text takes part in the next step."""
        return self.rows.can_step

    def prepare(self) -> None:
        """Do nothing: a text waits for nothing but its own work."""

    def join(self, texts: Mapping[int, TextInputs]) -> None:
        """Read what comes before the first steps of texts, in one pass; all have as many rows. Their slots,
        by which they are given, must be free. If it fails, none joins.
        """
        found = self.decoder.read([*texts.values()])
        self._close()
        first = self.rows.count
        for slot, text in texts.items():
            self.rows.join(slot, text)
        try:
            self._allocate(found[0].keys)
            for index, (slot, read) in enumerate(zip(texts, found, strict=True), first):
                self._put(index, slot, read)
        except Exception:  # the others go on
            for slot in texts:
                self.leave(slot)
            raise

    def feed(self, slot: int, ids: Sequence[int], *, more: bool) -> None:
        """Append ids to a text that goes on. more: it still does."""
        self.rows.feed(slot, ids, more=more)

    def leave(self, slot: int) -> None:
        """Free a slot; with the last one all memory but keys that are reserved."""
        self.rows.leave(slot)
        self.known.pop(slot, None)
        if not self.rows.texts:
            self.state = ()
            if not self.decoder.reserves or self.rows.slots == 1:
                self.caches, self.copies = [], 1

    def launch(self, steps: int) -> Launched:
        """Run some steps of all texts that do not wait; waits for actions only. There must be a text.

        Returns reads of (texts, ...) ids: the first is -1 where logits were not all finite.
        """
        self._close()
        running, failed = self.rows.begin(), list[int]()
        readings = [self._step(failed) for _ in range(steps)]
        return Launched(readings, running, failed)

    def read(self, launched: Launched) -> np.ndarray:
        """Wait for a launch. → (steps, slots, ...) ids; WAITED of a slot that took no part."""
        first, *others = [finish_read(reading)[None] for reading in launched.readings]
        return launched.ids(np.concatenate((first, *others)) if others else first, self.rows.slots)

    def _allocate(self, keys: Sequence[tuple[Any, Any]]) -> None:
        """Let every layer have room for what was read of texts. keys: as those of one of them."""
        form, kind = self.decoder.cache or RowCache, kind_of_keys(keys[0][0].dtype)
        self.caches = self.caches or [
            form(own[:0].astype(kind), values[:0].astype(kind), self.at) for own, values in keys
        ]
        self._reserve(int(self.rows.positions().max()))

    def _put(self, index: int, slot: int, read: TextRead) -> None:
        """Take what was read of the text at a place, the first without a state."""
        text = self.rows.texts[slot]
        held, apart = min(text.read, self.at.capacity), len(self.caches[0].keys) // self.copies
        for cache, pair in zip(self.caches, read.keys, strict=True):
            for copy in range(text.inputs.rows):
                cache.fill(copy * apart + index, *(rows[copy, :, :held] for rows in pair))
        self.state = mapped(appended, self.state, read.state) if index else read.state
        mapped(lambda row: text.shapes.append(row.shape), read.state)
        if read.made is not None:
            text.first, self.known[slot] = 1, read.made

    def _step(self, failed: list[int]) -> Reading:
        """Draw for every text that does not wait. failed: takes slots of those whose host part failed."""
        rows, decoder = self.rows, self.decoder
        made = self._made()
        drawing = made, self.state, rows.draws(), self._uniform()
        unread = np.zeros((rows.count, 2), np.int32)
        if decoder.reads_answers is None:
            reading = self._draw(*drawing, unread)
        else:
            acted = begin_read(decoder.act(*drawing))
            early = None if decoder.reads_answers else self._draw(*drawing, unread)  # while the host answers
            answers, lost = rows.answer(finish_read(acted))
            reading = self._draw(*drawing, answers) if early is None else early
            failed += lost
        rows.end()
        self.ticks += 1
        if self.ticks % STEPS_BETWEEN == 0:
            mx.clear_cache()
        return reading

    def _draw(
        self, made: mx.array, state: Any, draws: Draws, uniform: mx.array, answers: np.ndarray
    ) -> Reading:
        """Draw, and keep the state that follows, of the texts that draw."""
        ids, following = self.decoder.draw(made, state, draws, uniform, answers)
        if len(self.rows.drawing) < self.rows.count:
            drawing = self.host.to_device(np.array([*self.rows.drawing]))
            following = mapped(lambda held, new: merged(held, new, drawing), state, following)
        self.state = following
        return begin_read(ids)

    def _made(self) -> mx.array:
        """Run the network for the texts that drew before; what others draw from is known."""
        rows, known = self.rows, self.known
        if len(known) < len(rows.drawing):
            positions = rows.positions()
            last = int(positions.max())
            self._reserve(1 + last)
            self._move(positions, last)
            made = self.decoder.step(self.state, rows.given(), self.at, self.caches)
        else:
            first = next(iter(known.values()))
            made = mx.zeros((rows.count, *first.shape[1:]), first.dtype)
        for slot, own in known.items():
            made[rows.order.index(slot)] = own[0]
        known.clear()
        return made

    def _uniform(self) -> mx.array:
        """Draw the random numbers of the step. (N, ...)."""
        seeds = self.rows.seeds()
        if seeds is not None and passes(trial):
            return uniform(*seeds, self.decoder.numbers)
        return self.host.to_device(self.rows.uniform(self.decoder.numbers))

    def _move(self, positions: np.ndarray, last: int) -> None:
        """Let caches write at the rows' positions."""
        self.at.on_host = positions
        if (positions == last).all():
            self.at.level(last)
        else:
            self.at.move(self.host.to_device(positions), min(1 + last, self.at.capacity))

    def _close(self) -> None:
        """Let the last texts take the places of those that left."""
        if not self.rows.has_gaps:
            return
        moved = self.rows.close()
        apart = len(self.caches[0].keys) // self.copies
        for index, before in moved.items():
            for copy in range(self.copies):
                for cache in self.caches:
                    cache.move(copy * apart + index, copy * apart + before)
        indices = self.host.to_device(np.array([moved.get(index, index) for index in range(self.rows.count)]))
        sizes = iter(self.rows.sizes())
        self.state = mapped(lambda held: held[(indices, *map(slice, next(sizes)))], self.state)

    def _reserve(self, positions: int) -> None:
        """Let every layer have keys for all rows, this many of each: no row has more."""
        held, texts = self.caches[0].keys, self.rows
        apart = len(held) // self.copies
        rows = texts.wanted(apart)
        length = min(-(-positions // CHUNK) * CHUNK, self.at.capacity)
        if self.decoder.reserves:
            rows, length = texts.slots if texts.copies == 1 else rows, self.at.capacity
        if (texts.copies, rows) != (self.copies, apart) or length > held.shape[2]:
            for cache in self.caches:  # only one layer is held twice
                cache.relay(self.copies, texts.copies, rows, length)
            self.copies = texts.copies


def appended(held: mx.array, row: mx.array) -> mx.array:
    """Append a text's row, (1, ...), to those of others, (N, ...), with zeros where one is shorter."""
    sizes = [max(pair) for pair in zip(held.shape[1:], row.shape[1:], strict=True)]

    def padded(x: mx.array) -> mx.array:
        short = [size - there for size, there in zip(sizes, x.shape[1:], strict=True)]
        return mx.pad(x, [(0, 0), *((0, missing) for missing in short)]) if any(short) else x

    return mx.concatenate([padded(held), padded(row)])


def merged(held: mx.array, new: mx.array, indices: mx.array) -> mx.array:
    """Take what is new at some places, (N,)."""
    if new is held:
        return held
    found = mx.array(held)
    found[indices] = new[indices]
    return found
