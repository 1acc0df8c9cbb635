"""Sequences that one call of a network computes, one after the other on the axis of positions.

There is no padding: linears, norms and embeddings compute all positions at once, and each sequence attends by
itself, as it does alone. Batched attention with padding rounds otherwise than a single one on some devices
(ml-explore/mlx#3897).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from threading import local
from typing import Any, NamedTuple

import numpy as np

_HERE = local()  # of this thread. packed: sequences that products compute one by one
Concatenate = Callable[[list[Any], int], Any]


class PackedPart(NamedTuple):
    """One sequence's attention. rows, keys: its queries and its keys.  causal, mask: of these."""

    rows: slice
    keys: slice
    causal: bool = False
    mask: Any = None


class PackedMask(tuple[PackedPart, ...]):
    """Attention of each sequence by itself, in place of a mask."""

    __slots__ = ()

    def attend(self, attend: Callable[..., Any], query: Any, key: Any, value: Any) -> list[Any]:
        """Call `attend` for each sequence. (..., H, ΣL, E), (..., K, ΣS, E) twice → (..., H, L, E) each."""
        return [
            attend(
                query[..., part.rows, :],
                key[..., part.keys, :],
                value[..., part.keys, :],
                part.mask,
                is_causal=part.causal,
            )
            for part in self
        ]


@dataclass(frozen=True)
class Packed:
    """lengths: of each sequence, in their order."""

    lengths: tuple[int, ...]

    @classmethod
    def of(cls, lengths: Iterable[int]) -> Packed:
        """Pack sequences of these lengths."""
        return cls(tuple(lengths))

    @cached_property
    def spans(self) -> list[slice]:
        """Where each sequence is."""
        return [slice(*ends) for ends in pairwise(accumulate(self.lengths, initial=0))]

    @property
    def filled(self) -> list[slice]:
        """Where sequences are that have a position."""
        return [span for span in self.spans if span.stop > span.start]

    @property
    def total(self) -> int:
        """Positions of all."""
        return sum(self.lengths)

    @property
    def positions(self) -> np.ndarray:
        """Positions, of each sequence from 0 on. (ΣT,) int32."""
        return np.concatenate([np.arange(length, dtype=np.int32) for length in self.lengths])

    def everywhere(self, to_device: Callable[[np.ndarray], Any]) -> PackedCache:
        """Build the cache of any layer in which each position sees all of its sequence."""
        mask = PackedMask(PackedPart(span, span) for span in self.filled)
        return PackedCache(mask, to_device(self.positions))

    def caches(
        self, layers: Iterable[Any], to_device: Callable[[np.ndarray], Any], window: int | None = None
    ) -> list[PackedCache]:
        """Build each layer's cache. window: earlier positions that one sees; None for all."""

        def part(span: slice) -> PackedPart:
            length = span.stop - span.start
            if window is None or length <= window + 1:
                return PackedPart(span, span, causal=length > 1)
            seen = np.triu(np.tril(np.ones((length, length), np.bool_)), -window)
            return PackedPart(span, span, mask=to_device(seen))

        mask, at = PackedMask(map(part, self.filled)), to_device(self.positions)
        return [PackedCache(mask, at) for _ in layers]

    def keys(self, caches: Iterable[PackedCache], empty: Any) -> list[list[tuple[Any, Any]]]:
        """Return keys and values of each sequence by layer, as views. empty: (B, K, 0, E), where none has a
        position.
        """
        return [[cache.of(span) if self.total else (empty, empty) for cache in caches] for span in self.spans]

    @contextmanager
    def apart(self, *, is_on: bool) -> Iterator[None]:
        """Let `each_sequence` compute sequences one by one."""
        before, _HERE.packed = getattr(_HERE, "packed", None), self if is_on else None
        try:
            yield
        finally:
            _HERE.packed = before


def ring(span: slice, window: int) -> np.ndarray:
    """Return the last `window` places of a span in the order of a ring, (window,) int32."""
    last = span.stop - span.start - 1
    return (span.stop - 1 - (last - np.arange(window)) % window).astype(np.int32)


def each_sequence(call: Callable[[Any], Any], x: Any, concatenate: Concatenate) -> Any:
    """Apply a function of positions; inside of `apart` to each sequence by itself. (..., T, D)."""
    packed = getattr(_HERE, "packed", None)
    if packed is None or x.ndim < 2 or x.shape[-2] != packed.total:
        return call(x)
    made = [call(x[..., span, :]) for span in packed.filled]
    return made[0] if len(made) == 1 else concatenate(made, -2)


class PackedCache:
    """Keys and values of one layer, (B, K, ΣT, E), of packed sequences that nothing precedes.

    length: the positions of all, (ΣT,).
    """

    keys: Any
    values: Any

    def __init__(self, mask: PackedMask, length: Any):
        self.mask, self.length = mask, length

    def extend(self, keys: Any, values: Any) -> tuple[Any, Any]:
        """Keep keys and values, and return them. (B, K, ΣT, E) each → same."""
        self.keys, self.values = keys, values
        return keys, values

    def rule(self, rows: int) -> tuple[bool, PackedMask]:
        """Return (is_causal, mask): each sequence attends by itself."""
        return False, self.mask

    def of(self, positions: Any) -> tuple[Any, Any]:
        """Return keys and values at places, of a slice as views. → (B, K, T, E) each."""
        return self.keys[:, :, positions], self.values[:, :, positions]
