"""Caches of keys and values, and the masks of new rows over them."""

from __future__ import annotations

import torch
from torch import Tensor

CHUNK = 256  # rows by which the buffers grow


class KeyValueCache:
    """Buffers (B, K, capacity, E) that grow by chunks; owned by the caller, one per layer and batch.

    reserve: rows allocated at once; up to this number nothing is copied.
    """

    def __init__(self, reserve: int = 0):
        self.reserve = reserve
        self.buffers: tuple[Tensor, Tensor] | None = None  # keys and values
        self.length = 0

    def extend(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Append rows and return all so far, as views. (B, K, T, E) each → (B, K, length, E) each."""
        start, self.length = self.length, self.length + keys.shape[2]
        if self.buffers is None or self.length > self.buffers[0].shape[2]:
            fits = self.length <= self.reserve
            capacity = self.reserve if fits else -(-self.length // CHUNK) * CHUNK
            self.buffers = self.grown(keys, capacity, 0), self.grown(values, capacity, 1)
        all_keys, all_values = self.buffers
        all_keys[:, :, start : self.length] = keys
        all_values[:, :, start : self.length] = values
        return all_keys[:, :, : self.length], all_values[:, :, : self.length]

    def rule(self, rows: int) -> tuple[bool, Tensor | None]:
        """Return (is_causal, mask) for the last `rows`: each sees itself and all earlier rows."""
        if rows == 1 or self.buffers is None:
            return False, None
        if rows == self.length:
            return True, None
        everything = torch.ones(rows, self.length, dtype=torch.bool, device=self.buffers[0].device)
        return False, everything.tril(self.length - rows)

    def grown(self, like: Tensor, capacity: int, which: int) -> Tensor:
        """Create a buffer of `capacity` rows and copy the current one (0: keys, 1: values) into it."""
        batch, heads, _, width = like.shape
        larger = like.new_zeros(batch, heads, capacity, width)
        if self.buffers is not None:
            held = self.buffers[which]
            larger[:, :, : held.shape[2]] = held
        return larger


class RingCache:
    """Ring buffers (B, K, capacity, E) of fixed size: once full, a new row replaces the oldest one.

    window: number of earlier rows that a row of the first call sees. capacity: rows to keep, the smaller of
    `window` and the request's total. Owned by the caller, one per layer. The first call adds any number of
    rows, every later one a single row, which sees all rows that are kept.
    """

    def __init__(self, window: int, capacity: int):
        self.window, self.capacity = window, min(window, capacity)
        self.buffers: tuple[Tensor, Tensor] | None = None  # keys and values
        self.length = 0

    def extend(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Append rows. (B, K, T, E) each → rows that they may see: themselves, or a view of all kept."""
        start, self.length = self.length, self.length + keys.shape[2]
        if self.buffers is None:
            self.buffers = self.latest(keys), self.latest(values)
            return keys, values
        if keys.shape[2] != 1:
            raise ValueError(f"cache: {keys.shape[2]} rows after the first call; give them one by one")
        all_keys, all_values = self.buffers
        slot, seen = start % self.capacity, min(self.length, self.capacity)
        all_keys[:, :, slot : slot + 1] = keys
        all_values[:, :, slot : slot + 1] = values
        return all_keys[:, :, :seen], all_values[:, :, :seen]

    def rule(self, rows: int) -> tuple[bool, Tensor | None]:
        """Return (is_causal, mask) for the last `rows`: each sees itself and `window` earlier rows."""
        if rows == 1 or self.buffers is None:
            return False, None
        if rows <= self.window + 1:
            return True, None
        everything = torch.ones(rows, rows, dtype=torch.bool, device=self.buffers[0].device)
        return False, everything.tril().triu(-self.window)

    def latest(self, rows: Tensor) -> Tensor:
        """Build a buffer of the first call's last rows; position p is in slot p % capacity."""
        batch, heads, length, width = rows.shape
        buffer = rows.new_zeros(batch, heads, self.capacity, width)
        first = max(0, length - self.capacity)
        oldest = first % self.capacity  # the slot of the oldest
        last = min(length, first + self.capacity - oldest)
        buffer[:, :, oldest : oldest + last - first] = rows[:, :, first:last]
        buffer[:, :, : length - last] = rows[:, :, last:]
        return buffer
