"""State of streams: what the operations that look back carry from one call to the next, a row a stream.

Every operation takes its own array of the call before, in the order in which they run, and leaves one for the
next call. Nothing is written in place: a call that fails changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class StreamState(NamedTuple):
    """State of a stream between two calls.

    steps: of the transformer so far.
    arrays: of the operations, (1, ...) each; a convolution's have the same shape after every call, and keys
    may have zeros before the first step.
    """

    steps: int
    arrays: tuple[Tensor, ...]


States = Sequence[StreamState | None]  # of streams, a row each; None at the start of one


class StreamPositions(NamedTuple):
    """Steps of a call in their streams (tts_core.nn.positions.stream_positions)."""

    cos: Tensor
    sin: Tensor
    mask: Tensor


class Carried:
    """State of the streams of a call, for its operations.

    states: after the calls before; None where all streams start, as many as the call has rows.
    """

    def __init__(self, states: States | None = None):
        self.states, self._left = states or (None,), list[list[Tensor]]()

    @property
    def starts(self) -> tuple[int, ...]:
        """Steps so far; one number for all rows where all streams start."""
        return tuple(0 if state is None else state.steps for state in self.states)

    @property
    def _rows(self) -> list[Tensor | None]:
        """The inputs of the next operation that each stream carries."""
        index = len(self._left)
        return [None if state is None else state.arrays[index] for state in self.states]

    @property
    def next(self) -> Tensor | None:
        """The array that the next operation takes; None where all streams start."""
        return stacked(self._rows)

    @property
    def held(self) -> int:
        """Keys that the next operation, an attention, takes."""
        return max(0 if row is None else row.shape[2] for row in self._rows)

    def after(self, steps: int) -> list[StreamState]:
        """Return the states after the call. steps: of the transformer in it."""
        rows = [*zip(*self._left, strict=True)]
        starts = self.starts if len(self.states) == len(rows) else (0,) * len(rows)
        return [StreamState(start + steps, row) for start, row in zip(starts, rows, strict=True)]

    def extended(self, x: Tensor, count: int, first: Tensor | None = None) -> Tensor:
        """Put the last `count` inputs before x. (B, C, T) → (B, C, count + T).

        first: inputs before the start of the streams; None for zeros.
        """
        before = self.next
        if before is None:
            before = x.new_zeros(*x.shape[:2], count) if first is None else first
        known = torch.cat((before.to(x.dtype), x), dim=2)
        self._leave(known[:, :, known.shape[2] - count :])
        return known

    def appended(self, x: Tensor, most: int) -> Tensor:
        """Put the keys or values so far before x, and leave at most `most`. (B, K, T, E) → (B, K, S, E)."""
        before = self.next
        known = x if before is None else torch.cat((before.to(x.dtype), x), dim=2)
        self._leave(known[:, :, max(0, known.shape[2] - most) :])
        return known

    def added(self, x: Tensor, count: int) -> Tensor:
        """Add the outputs of the call before that reach into this one, and leave the last `count`.

        (B, C, T + count), which may be changed → (B, C, T).
        """
        before = self.next
        if before is not None:
            x[:, :, :count] += before
        length = x.shape[2] - count
        self._leave(x[:, :, length:])
        return x[:, :, :length]

    def _leave(self, x: Tensor) -> None:
        """Leave the rows of an array for the next call: copies, for views would keep all of their source in
        memory.
        """
        self._left.append([row.clone() for row in x.split(1)])


def stacked(rows: Sequence[Tensor | None]) -> Tensor | None:
    """Stack arrays of streams, those of fewer keys after zeros; None is zeros. (1, ...) each → (R, ...)."""
    known = [row for row in rows if row is not None]
    if len(rows) == 1 or not known:
        return rows[0]
    most = max(row.shape[2] for row in known)
    filled = [torch.zeros_like(known[0]) if row is None else row for row in rows]
    widened = [row if row.shape[2] == most else F.pad(row, (0, 0, most - row.shape[2], 0)) for row in filled]
    return torch.cat(widened)
