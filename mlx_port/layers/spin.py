"""Rotary positions of single rows as one element-wise product each, for keys together with their values."""

from __future__ import annotations

import mlx.core as mx
import numpy as np

from mlx_port.layers.chain import chain


class Spins:
    """Tables of half-split rotary positions, laid out for `turn`.

    cos, sin: (P, E/2) each, as in mlx_port.layers.rope.
    """

    def __init__(self, cos: mx.array, sin: mx.array):
        self.table = mx.stack([cos, -sin, sin], axis=1)  # (P, 3, E/2)
        mx.async_eval(self.table)

    def __call__(self, places: np.ndarray) -> mx.array:
        """Return the table of each row's position, or one for all rows if it is the same. (R,) → (R or 1, 1,
        3, E/2).
        """
        if (places == places[0]).all():
            return self.table[int(places[0])][None, None]
        return self.table[mx.array(places)][:, None]


def turn(x: mx.array, spin: mx.array) -> mx.array:
    """Rotate queries. (R, H, 2, E/2), halves apart → same."""
    return _turn(x, x[..., ::-1, :], spin[..., :1, :], spin[..., 1:, :])


def turn_keys(x: mx.array, spin: mx.array, are_keys: mx.array) -> mx.array:
    """Rotate keys and leave values. (R, 2K, 2, E/2), halves apart → same.

    are_keys: (2K, 1, 1) bool.
    """
    return _turn_keys(x, x[..., ::-1, :], spin[..., :1, :], spin[..., 1:, :], are_keys)


@chain
def _turn(x: mx.array, other: mx.array, cos: mx.array, sin: mx.array) -> mx.array:
    return (x.astype(mx.float32) * cos + other.astype(mx.float32) * sin).astype(x.dtype)


@chain
def _turn_keys(x: mx.array, other: mx.array, cos: mx.array, sin: mx.array, are_keys: mx.array) -> mx.array:
    turned = x.astype(mx.float32) * cos + other.astype(mx.float32) * sin
    return mx.where(are_keys, turned.astype(x.dtype), x)
