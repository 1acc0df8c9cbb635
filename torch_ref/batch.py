"""A running batch: texts that share the steps of one network, each joining and leaving between two of them.

A text has its own rows, positions, settings and random numbers; its ids are those that it has by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from torch_ref.layers.cache import CHUNK
from torch_ref.layers.row_cache import RowCache, RowPositions
from torch_ref.limits.independent import independent_rows
from torch_ref.reading import begin_read, finish_read
from tts_core.speaking.decoder import BatchDecoder
from tts_core.speaking.rows import BatchRows, Launched, TextInputs


class RunningBatch:
    """Slots for `texts` texts of at most `room` positions. Keys and values grow with the longest text and
    with the rows in use, and are freed with the last text.

    rows: of the network in all; None for one a text.
    """

    def __init__(self, decoder: BatchDecoder, *, texts: int, room: int, rows: int | None = None):
        self.decoder, self.host, self.plan = decoder, decoder.host, BatchRows(texts, room, rows)
        self.steps, self.ahead = decoder.steps, decoder.ahead
        self.at = RowPositions(room if decoder.window is None else min(decoder.window, room))
        self._free()

    @property
    def can_step(self) -> bool:
        """True if a text takes part in the next step."""
        return self.plan.can_step

    @torch.inference_mode()
    def join(self, slot: int, text: TextInputs) -> None:
        """Read what comes before a text's first step. Its slot must be free."""
        read = self.decoder.read(text)
        joined = self.plan.join(slot, text)
        self.caches = self.caches or [
            RowCache(keys[:0, :, :0], values[:0, :, :0], self.at) for keys, values in read.keys
        ]
        self._reserve(text.positions)
        kept = min(text.positions, self.at.capacity)
        for cache, pair in zip(self.caches, read.keys, strict=True):
            for place, row in enumerate(joined.rows):
                cache.fill(row, *(each[place, :, :kept] for each in pair))
        held = self.state or [each[:0] for each in read.state]
        self.state = type(read.state)(*(put(slot, *each) for each in zip(held, read.state, strict=True)))
        if read.made is not None:
            joined.first, self.known[slot] = 1, read.made

    def feed(self, slot: int, ids: Sequence[int], *, more: bool) -> None:
        """Append ids to a text that goes on. more: it still does."""
        self.plan.feed(slot, ids, more=more)

    def leave(self, slot: int) -> None:
        """Free a slot; with the last one all memory."""
        self.plan.leave(slot)
        self.known.pop(slot, None)
        if not self.plan.texts:
            self._free()

    @torch.inference_mode()
    def launch(self, steps: int) -> Launched:
        """Run some steps of all texts that do not wait; waits for nothing. There must be one.

        Returns a read of (steps, slots in use, ...) ids: the first is -1 where logits were not all finite.
        """
        waiting = self.plan.waiting
        return Launched(begin_read(torch.stack([self._step() for _ in range(steps)])), waiting)

    def read(self, launched: Launched) -> np.ndarray:
        """Wait for a launch. → (steps, slots, ...) ids; WAITED of a text that waited."""
        return launched.ids(finish_read(launched.reading))

    def _step(self) -> Tensor:
        """Draw for every text that does not wait. → (slots in use, ...) ids."""
        plan, decoder = self.plan, self.decoder
        made = self._made()
        uniform = self.host.to_device(plan.uniform(decoder.numbers))
        with independent_rows(decoder.network):
            ids, state = decoder.draw(made, self._used(), plan.draws(), uniform)
        self._keep(state)
        plan.advance()
        return ids

    def _made(self) -> Tensor:
        """Run the network for the texts that drew before; what others draw from is known."""
        plan, known = self.plan, self.known
        if len(known) < len(plan.drawing):
            positions = plan.positions()
            last = int(positions.max())
            self._reserve(1 + last)
            self._move(positions, last)
            with independent_rows(self.decoder.network, 1 + positions):
                made = self.decoder.step(self._used(), plan.given(), self.at, self.caches)
        else:
            one = next(iter(known.values()))
            made = one.new_zeros(plan.count, *one.shape[1:])
        for slot, own in known.items():
            made[slot] = own[0]
        known.clear()
        return made

    def _move(self, positions: np.ndarray, last: int) -> None:
        """Let caches write at the rows' positions."""
        self.at.places = positions
        if (positions == last).all():
            self.at.level(last)
        else:
            self.at.move(self.host.to_device(positions).long(), min(1 + last, self.at.capacity))

    def _used(self) -> Any:
        """Return the state of the slots in use."""
        return type(self.state)(*(each[: self.plan.count] for each in self.state))

    def _keep(self, state: Any) -> None:
        """Keep the state after a draw, of the texts that drew."""
        plan = self.plan
        if plan.waiting or len(self.state[0]) > plan.count:
            drawing = self.host.to_device(np.array(plan.drawing))
            for held, new in zip(self.state, state, strict=True):
                held[drawing] = new[drawing]
        else:
            self.state = state

    def _reserve(self, positions: int) -> None:
        """Let every layer have this many keys of the rows in use; those that are there are kept."""
        held = self.caches[0].keys
        more = [
            wanted - there for wanted, there in zip(self._wanted(positions), held.shape[:3:2], strict=True)
        ]
        if max(more) > 0:
            grown = (0, 0, 0, max(0, more[1]), 0, 0, 0, max(0, more[0]))
            for cache in self.caches:
                cache.keys, cache.values = F.pad(cache.keys, grown), F.pad(cache.values, grown)

    def _wanted(self, positions: int) -> tuple[int, int]:
        """Count rows and positions of keys to have."""
        return self.plan.wanted_rows, min(-(-positions // CHUNK) * CHUNK, self.at.capacity)

    def _free(self) -> None:
        """Drop all that belongs to texts. known: by slot, what texts draw from that have only been read."""
        self.caches: list[RowCache] = []
        self.state: Any = ()
        self.known: dict[int, Tensor] = {}


def put(slot: int, held: Tensor, row: Tensor) -> Tensor:
    """Put a row into a slot. held: (N, ...), grown with zeros to hold it.  row: (1, ...)."""
    wanted = slot + 1, *row.shape[1:]
    short = [max(0, new - there) for there, new in zip(held.shape, wanted, strict=True)]
    if max(short) > 0:
        held = F.pad(held, [size for each in reversed(short) for size in (0, each)])
    held[slot] = 0
    held[(slot, *map(slice, row.shape[1:]))] = row[0]
    return held
