"""Keys and values of the rows that a decoder has read, and which of them a new row may see."""

from __future__ import annotations

import mlx.core as mx

CHUNK = 256  # rows by which the buffers grow


class KeyValueCache:
    """Buffers (B, K, capacity, E) that grow by chunks; owned by the caller, one per layer and batch.

    reserve: rows that are allocated at once, and as long as they suffice nothing is copied or left over.
    """

    def __init__(self, reserve: int = 0):
        self.reserve = reserve
        self.buffers: tuple[mx.array, mx.array] | None = None  # keys and values
        self.length = 0

    def extend(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
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

    def rule(self, rows: int) -> tuple[bool, mx.array | None]:
        """(is_causal, mask) for the last `rows`: each sees itself and what is before it."""
        if rows == 1 or self.buffers is None:
            return False, None
        if rows == self.length:
            return True, None
        everything = mx.ones((rows, self.length), dtype=mx.bool_)
        return False, mx.tril(everything, self.length - rows)

    def grown(self, like: mx.array, capacity: int, which: int) -> mx.array:
        """A buffer of `capacity` rows that starts with what the present one (0: keys, 1: values) holds."""
        batch, heads, _, width = like.shape
        larger = mx.zeros((batch, heads, capacity, width), dtype=like.dtype)
        if self.buffers is not None:
            held = self.buffers[which]
            larger[:, :, : held.shape[2]] = held
        return larger


class RingCache:
    """Buffers (B, K, capacity, E) of fixed size: a row behind the last one takes the place of the oldest.

    window: how many rows before its own a row of the first call sees. capacity: rows to keep; what the whole
    request needs, or `window`, whichever is less. Owned by the caller, one per layer. The first call brings
    any number of rows, every later one a single row, which sees all that are kept.
    """

    def __init__(self, window: int, capacity: int):
        self.window, self.capacity = window, min(window, capacity)
        self.buffers: tuple[mx.array, mx.array] | None = None  # keys and values
        self.length = 0

    def extend(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Append rows. (B, K, T, E) each → what they may see: the rows themselves, or a view of all kept."""
        start, self.length = self.length, self.length + keys.shape[2]
        if self.buffers is None:
            self.buffers = self.kept(keys), self.kept(values)
            return keys, values
        if keys.shape[2] != 1:
            raise ValueError(f"cache: {keys.shape[2]} rows behind the first call; give them one by one")
        all_keys, all_values = self.buffers
        slot, seen = start % self.capacity, min(self.length, self.capacity)
        all_keys[:, :, slot : slot + 1] = keys
        all_values[:, :, slot : slot + 1] = values
        return all_keys[:, :, :seen], all_values[:, :, :seen]

    def rule(self, rows: int) -> tuple[bool, mx.array | None]:
        """(is_causal, mask) for the last `rows`: each sees itself and `window` rows before it."""
        if rows == 1 or self.buffers is None:
            return False, None
        if rows <= self.window + 1:
            return True, None
        everything = mx.ones((rows, rows), dtype=mx.bool_)
        return False, mx.triu(mx.tril(everything), -self.window)

    def kept(self, rows: mx.array) -> mx.array:
        """A buffer with the last of the first rows, the row of position p in slot p % capacity."""
        batch, heads, length, width = rows.shape
        buffer = mx.zeros((batch, heads, self.capacity, width), dtype=rows.dtype)
        first = max(0, length - self.capacity)
        turn = first % self.capacity  # the slot of the oldest
        last = min(length, first + self.capacity - turn)
        buffer[:, :, turn : turn + last - first] = rows[:, :, first:last]
        buffer[:, :, : length - last] = rows[:, :, last:]
        return buffer
