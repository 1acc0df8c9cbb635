"""State of streams: what the operations that look back carry from one call to the next, a row a stream.

Every operation takes its own array of the call before, in the order in which they run, and leaves one for the
next call. Nothing is written in place: a call that fails changes nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import mlx.core as mx


class StreamState(NamedTuple):
    """State of streams between two calls.

    steps: of the transformer so far, a number a row.
    arrays: of the operations, (B, ...) each; a convolution's have the same shape after every call, and keys
    may have zeros before the first step.
    """

    steps: tuple[int, ...]
    arrays: tuple[mx.array, ...]


class Places(NamedTuple):
    """Steps of a call in their streams (tts_core.nn.positions.stream_places)."""

    cos: mx.array
    sin: mx.array
    mask: mx.array


class Carried:
    """State of the streams of a call, for its operations.

    state: after the call before; None at the start of the streams.
    places: of its steps; computed unless given.
    """

    def __init__(self, state: StreamState | None = None, places: Places | None = None):
        self.state, self.places, self._left = state, places, list[mx.array]()

    @property
    def starts(self) -> tuple[int, ...]:
        """Steps so far; one number for all rows at the start of the streams."""
        return (0,) if self.state is None else self.state.steps

    @property
    def next(self) -> mx.array | None:
        """The array that the next operation takes; None at the start of the streams."""
        return None if self.state is None else self.state.arrays[len(self._left)]

    def after(self, rows: int, steps: int) -> StreamState:
        """Return the state after the call. steps: of the transformer in it."""
        starts = self.starts if self.state else (0,) * rows
        return StreamState(tuple(start + steps for start in starts), tuple(self._left))

    def joined(self, x: mx.array, count: int, first: mx.array | None = None) -> mx.array:
        """Put the last `count` inputs before x. (B, T, C) → (B, count + T, C).

        first: inputs before the start of the streams; None for zeros.
        """
        before = self.next if self.state else first
        if before is None:
            before = mx.zeros((x.shape[0], count, x.shape[2]), x.dtype)
        known = mx.concatenate([before, x], axis=1)
        self._leave(known[:, known.shape[1] - count :])
        return known

    def appended(self, x: mx.array, most: int) -> mx.array:
        """Put the keys or values so far before x, and leave at most `most`. (B, K, T, E) → (B, K, S, E)."""
        known = x if self.next is None else mx.concatenate([self.next, x], axis=2)
        self._leave(known[:, :, max(0, known.shape[2] - most) :])
        return known

    def added(self, x: mx.array, count: int) -> mx.array:
        """Add the outputs of the call before that reach into this one, and leave the last `count`.

        (B, T + count, C) → (B, T, C).
        """
        if self.next is not None:
            x = mx.concatenate([x[:, :count] + self.next, x[:, count:]], axis=1)
        length = x.shape[1] - count
        self._leave(x[:, length:])
        return x[:, :length]

    def _leave(self, x: mx.array) -> None:
        """Leave an array for the next call: a copy, for a view would keep all of its source in memory."""
        self._left.append(mx.contiguous(x))
