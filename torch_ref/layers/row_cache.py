"""A cache for rows of a batch that come and go: each has a position of its own."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor


class RowPositions:
    """Positions of the rows of one step, shared by the caches of all layers.

    capacity: rows of keys that are kept per row of the batch.
    on_host: (R,), the positions on the host.
    """

    on_host: np.ndarray

    def __init__(self, capacity: int):
        self.capacity = capacity
        self.all_at: int | None = None  # the position of all rows, if they share one
        self.mask: Tensor | None = None

    @property
    def start(self) -> Tensor | int:
        """The positions, (R, 1, 1); a number where all rows have one."""
        return self.positions[:, None, None] if self.all_at is None else self.all_at

    def move(self, positions: Tensor, seen: int) -> None:
        """Begin a step of the first R rows of the batch. positions: (R,) int64.

        seen: keys that are read, from the first on; more than every position, or all that are kept.
        """
        self.positions, self.seen, self.all_at = positions, seen, None
        self.rows = torch.arange(len(positions), device=positions.device)
        self.slots = positions % self.capacity
        slots = torch.arange(seen, device=positions.device)
        self.mask = (slots <= positions[:, None])[:, None, None]

    def level(self, position: int) -> None:
        """Begin a step of rows that are all at one position."""
        self.all_at, self.slot, self.mask = position, position % self.capacity, None
        self.seen = min(position + 1, self.capacity)


class RowCache:
    """Ring buffers (R, K, capacity, E) of one layer, written at each row's own position. Takes one row of
    keys at a time for the first rows of the batch.

    keys, values: the buffers, owned by the cache.
    """

    def __init__(self, keys: Tensor, values: Tensor, at: RowPositions):
        self.keys, self.values, self.at = keys, values, at

    @property
    def length(self) -> Tensor | int:
        """Keys before this step's, (R, 1); a number where all rows have as many."""
        return self.at.positions[:, None] if self.at.all_at is None else self.at.all_at

    def fill(self, row: int, keys: Tensor, values: Tensor) -> None:
        """Replace the first slots of a row. (K, T, E) each, in the order of the ring."""
        self.keys[row, :, : keys.shape[1]] = keys
        self.values[row, :, : values.shape[1]] = values

    def move(self, row: int, before: int) -> None:
        """Let a row take what another one has."""
        self.keys[row], self.values[row] = self.keys[before], self.values[before]

    def relay(self, before: int, copies: int, rows: int, length: int) -> None:
        """Hold keys of other numbers of rows, as `relaid` does."""
        self.keys = relaid(self.keys, before, copies, rows, length)
        self.values = relaid(self.values, before, copies, rows, length)

    def extend(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Write a key for each row and return all that may be read. (R, K, 1, E) → (R, K, seen, E) each."""
        at, count = self.at, keys.shape[0]
        if at.all_at is not None:
            self.keys[:count, :, at.slot : at.slot + 1] = keys
            self.values[:count, :, at.slot : at.slot + 1] = values
        else:
            self.keys[at.rows, :, at.slots] = keys[:, :, 0]
            self.values[at.rows, :, at.slots] = values[:, :, 0]
        return self.keys[:count, :, : at.seen], self.values[:count, :, : at.seen]

    def rule(self, rows: int) -> tuple[bool, Tensor | None]:
        """Return (is_causal, mask): each row sees its own keys."""
        return False, self.at.mask


def relaid(x: Tensor, before: int, copies: int, rows: int, length: int) -> Tensor:
    """Lay out keys for other numbers of rows, and cut them or add zeros.

    (..., before · N, K, T, E) → (..., copies · places, K, length, E).
    """
    x = x.unflatten(-4, (before, -1))[..., :copies, :rows, :, :length, :]
    wanted = *x.shape[:-5], copies, rows, x.shape[-3], length, x.shape[-1]
    short = [size - there for size, there in zip(wanted, x.shape, strict=True)]
    return F.pad(x, [number for missing in reversed(short) for number in (0, missing)]).flatten(-5, -4)
