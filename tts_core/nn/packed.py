"""Sequences that one call of a network computes, one after the other on the axis of positions.

There is no padding: linears, norms and embeddings compute all positions at once, and each sequence attends by
itself, as it does alone. Batched attention with padding rounds otherwise than a single one on some devices
(ml-explore/mlx#3897).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np

Rule = Callable[[int], tuple[bool, Any]]  # of a sequence by its length: is_causal, and a mask


def window_mask(length: int, window: int) -> np.ndarray:
    """Let each position see itself and `window` earlier ones. → (length, length), True at keys to see."""
    return np.triu(np.tril(np.ones((length, length), np.bool_)), -window)


class Part(NamedTuple):
    """One sequence's attention. rows, keys: its queries and its keys.  causal, mask: of these."""

    rows: slice
    keys: slice
    causal: bool = False
    mask: Any = None


class Parts(tuple[Part, ...]):
    """Attention of each sequence by itself, in place of a mask."""

    __slots__ = ()

    def attend(self, attend: Callable[..., Any], query: Any, key: Any, value: Any, **given: Any) -> list[Any]:
        """Call `attend` for each sequence. (..., H, ΣL, E), (..., K, ΣS, E) twice → (..., H, L, E) each."""
        return [
            attend(
                query[..., one.rows, :],
                *(each[..., one.keys, :] for each in (key, value)),
                one.mask,
                is_causal=one.causal,
                **given,
            )
            for one in self
        ]


@dataclass(frozen=True)
class Packed:
    """lengths: of each sequence, in their order."""

    lengths: tuple[int, ...]

    @classmethod
    def of(cls, lengths: Iterable[int]) -> Packed:
        return cls(tuple(lengths))

    @cached_property
    def spans(self) -> list[slice]:
        """Where each sequence is."""
        return [slice(*each) for each in pairwise(accumulate(self.lengths, initial=0))]

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

    def parts(self, rule: Rule = lambda length: (False, None)) -> Parts:
        """Let each sequence attend to itself; everywhere without a rule."""
        return Parts(Part(span, span, *rule(span.stop - span.start)) for span in self.filled)

    def caches(self, layers: Iterable[Any], at: Any, rule: Rule | None = None) -> list[PackedCache]:
        """Build the cache of each layer. at: `positions` on the device.  rule: causal if None."""
        parts = self.parts(rule or (lambda length: (length > 1, None)))
        return [PackedCache(parts, at) for _ in layers]


class PackedCache:
    """Keys and values of one layer, (B, K, ΣT, E), of packed sequences that nothing precedes.

    length: the positions of all, (ΣT,).
    """

    def __init__(self, parts: Parts, length: Any):
        self.parts, self.length = parts, length

    def extend(self, keys: Any, values: Any) -> tuple[Any, Any]:
        """Keep keys and values, and return them. (B, K, ΣT, E) each → same."""
        self.keys, self.values = keys, values
        return keys, values

    def rule(self, rows: int) -> tuple[bool, Parts]:
        """Return (is_causal, mask): each sequence attends by itself."""
        return False, self.parts

    def of(self, span: slice) -> tuple[Any, Any]:
        """Return keys and values of a sequence, as views. → (B, K, T, E) each."""
        return self.keys[:, :, span], self.values[:, :, span]
