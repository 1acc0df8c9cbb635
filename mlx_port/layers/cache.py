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
