"""Keys and values of the rows that a decoder has read."""

from __future__ import annotations

import torch
from torch import Tensor

CHUNK = 256  # rows by which the buffers grow


class KeyValueCache:
    """Buffers (B, K, capacity, E) that grow by chunks; owned by the caller, one per layer and batch."""

    def __init__(self):
        self.keys: Tensor | None = None
        self.values: Tensor | None = None
        self.length = 0

    def extend(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Append rows and return all so far, as views. (B, K, T, E) each → (B, K, length, E) each."""
        start, self.length = self.length, self.length + keys.shape[2]
        if self.keys is None or self.length > self.keys.shape[2]:
            capacity = -(-self.length // CHUNK) * CHUNK
            self.keys, self.values = (
                _grown(self.keys, keys, capacity, start),
                _grown(self.values, values, capacity, start),
            )
        self.keys[:, :, start : self.length] = keys
        self.values[:, :, start : self.length] = values
        return self.keys[:, :, : self.length], self.values[:, :, : self.length]


def _grown(buffer: Tensor | None, like: Tensor, capacity: int, filled: int) -> Tensor:
    batch, heads, _, width = like.shape
    larger = torch.zeros(batch, heads, capacity, width, dtype=like.dtype, device=like.device)
    if buffer is not None:
        larger[:, :, :filled] = buffer[:, :, :filled]
    return larger
