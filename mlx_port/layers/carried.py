"""State of streams: what the operations that look back carry from one call to the next, a row a stream.

Every operation takes its own array of the call before, in the order in which they run, and leaves one for the
next call. Nothing is written in place: a call that fails changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import mlx.core as mx


class StreamState(NamedTuple):
    """State of a stream between two calls.

    steps: of the transformer so far.
    arrays: of the operations, (1, ...) each; a convolution's have the same shape after every call, and keys
    may have zeros before the first step.
    """

    steps: int
    arrays: tuple[mx.array, ...]


States = Sequence[StreamState | None]  # of streams, a row each; None at the start of one


class StreamPositions(NamedTuple):
    """Steps of a call in their streams (tts_core.nn.positions.stream_positions)."""

    cos: mx.array
    sin: mx.array
    mask: mx.array


class Carried:
    """State of the streams of a call, for its operations.

    states: after the calls before; None where all streams start, as many as the call has rows.
    """

    def __init__(self, states: States | None = None):
        self.states, self._left = states or (None,), list[list[mx.array]]()

    @property
    def starts(self) -> tuple[int, ...]:
        """Steps so far; one number for all rows where all streams start."""
        return tuple(0 if state is None else state.steps for state in self.states)

    @property
    def _rows(self) -> list[mx.array | None]:
        """The inputs of the next operation that each stream carries."""
        index = len(self._left)
        return [None if state is None else state.arrays[index] for state in self.states]

    @property
    def next(self) -> mx.array | None:
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

    def extended(self, x: mx.array, count: int, first: mx.array | None = None) -> mx.array:
        """Put the last `count` inputs before x. (B, T, C) → (B, count + T, C).

        first: inputs before the start of the streams; None for zeros.
        """
        before = self.next
        if before is None:
            before = mx.zeros((x.shape[0], count, x.shape[2]), x.dtype) if first is None else first
        known = mx.concatenate([before, x], axis=1)
        self._leave(known[:, known.shape[1] - count :])
        return known

    def appended(self, x: mx.array, most: int) -> mx.array:
        """Put the keys or values so far before x, and leave at most `most`. (B, K, T, E) → (B, K, S, E)."""
        before = self.next
        known = x if before is None else mx.concatenate([before, x], axis=2)
        self._leave(known[:, :, max(0, known.shape[2] - most) :])
        return known

    def added(self, x: mx.array, count: int) -> mx.array:
        """Add the outputs of the call before that reach into this one, and leave the last `count`.

        (B, T + count, C) → (B, T, C).
        """
        before = self.next
        if before is not None:
            x = mx.concatenate([x[:, :count] + before, x[:, count:]], axis=1)
        length = x.shape[1] - count
        self._leave(x[:, length:])
        return x[:, :length]

    def _leave(self, x: mx.array) -> None:
        """Leave the rows of an array for the next call: copies, for views would keep all of their source in
        memory.
        """
        self._left.append([mx.contiguous(x[row : row + 1]) for row in range(x.shape[0])])


def stacked(rows: Sequence[mx.array | None]) -> mx.array | None:
    """Stack arrays of streams, those of fewer keys after zeros; None is zeros. (1, ...) each → (R, ...)."""
    known = [row for row in rows if row is not None]
    if len(rows) == 1 or not known:
        return rows[0]
    most = max(row.shape[2] for row in known)
    filled = [mx.zeros_like(known[0]) if row is None else row for row in rows]
    widened = [
        row if row.shape[2] == most else mx.pad(row, [(0, 0), (0, 0), (most - row.shape[2], 0), (0, 0)])
        for row in filled
    ]
    return mx.concatenate(widened)
