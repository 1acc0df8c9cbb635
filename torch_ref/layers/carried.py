"""State of streams: what the operations that look back carry from one call to the next, a row a stream.

Every operation takes its own array of the call before, in the order in which they run, and leaves one for the
next call. Nothing is written in place: a call that fails changes nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class StreamState(NamedTuple):
    """State of streams between two calls.

    steps: of the transformer so far, a number a row.
    arrays: of the operations, (B, ...) each; a convolution's have the same shape after every call, and keys
    may have zeros before the first step.
    """

    steps: tuple[int, ...]
    arrays: tuple[Tensor, ...]


class Places(NamedTuple):
    """Steps of a call in their streams (tts_core.nn.positions.stream_places)."""

    cos: Tensor
    sin: Tensor
    mask: Tensor


class Carried:
    """State of the streams of a call, for its operations.

    state: after the call before; None at the start of the streams.
    places: of its steps; computed unless given.
    """

    def __init__(self, state: StreamState | None = None, places: Places | None = None):
        self.state, self.places, self._left = state, places, list[Tensor]()

    @property
    def starts(self) -> tuple[int, ...]:
        """Steps so far; one number for all rows at the start of the streams."""
        return (0,) if self.state is None else self.state.steps

    @property
    def next(self) -> Tensor | None:
        """The array that the next operation takes; None at the start of the streams."""
        return None if self.state is None else self.state.arrays[len(self._left)]

    def after(self, rows: int, steps: int) -> StreamState:
        """Return the state after the call. steps: of the transformer in it."""
        starts = self.starts if self.state else (0,) * rows
        return StreamState(tuple(start + steps for start in starts), tuple(self._left))

    def joined(self, x: Tensor, count: int, first: Tensor | None = None) -> Tensor:
        """Put the last `count` inputs before x. (B, C, T) → (B, C, count + T).

        first: inputs before the start of the streams; None for zeros.
        """
        before = self.next if self.state else first
        if before is None:
            before = x.new_zeros(*x.shape[:2], count)
        known = torch.cat((before.to(x.dtype), x), dim=2)
        self._leave(known[:, :, known.shape[2] - count :])
        return known

    def appended(self, x: Tensor, most: int) -> Tensor:
        """Put the keys or values so far before x, and leave at most `most`. (B, K, T, E) → (B, K, S, E)."""
        known = x if self.next is None else torch.cat((self.next.to(x.dtype), x), dim=2)
        self._leave(known[:, :, max(0, known.shape[2] - most) :])
        return known

    def added(self, x: Tensor, count: int) -> Tensor:
        """Add the outputs of the call before that reach into this one, and leave the last `count`.

        (B, C, T + count), which may be changed → (B, C, T).
        """
        if self.next is not None:
            x[:, :, :count] += self.next
        length = x.shape[2] - count
        self._leave(x[:, :, length:])
        return x[:, :, :length]

    def _leave(self, x: Tensor) -> None:
        """Leave an array for the next call: a copy, for a view would keep all of its source in memory."""
        self._left.append(x.clone())
