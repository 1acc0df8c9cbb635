"""A cache whose buffers keep their addresses, as captured steps need them."""

from __future__ import annotations

from torch import Tensor


class FixedCache:
    """Buffers of fixed size and address, written at a position stored on the device: for captured steps.

    keys, values: (B, K, capacity, E).
    position: (1,) int64, the row to write.
    mask: (1, 1, 1, capacity), True up to `position`; both are shared by all layers and owned by the caller.
    Takes one row at a time.
    """

    def __init__(self, keys: Tensor, values: Tensor, position: Tensor, mask: Tensor):
        self.keys, self.values, self.length, self.mask = keys, values, position, mask

    def extend(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Write one row and return the whole buffers. (B, K, 1, E) each → (B, K, capacity, E) each."""
        self.keys.index_copy_(2, self.length, keys)
        self.values.index_copy_(2, self.length, values)
        return self.keys, self.values

    def rule(self, rows: int) -> tuple[bool, Tensor | None]:
        """Return (is_causal, mask): the row sees itself and all earlier rows."""
        return False, self.mask
