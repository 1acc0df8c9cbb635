"""Rotary positions of single rows, each at its own position."""

from __future__ import annotations

import mlx.core as mx
import numpy as np

from mlx_port.kernels import rotate as kernel
from mlx_port.kernels import source
from mlx_port.layers.rope import Rotation, rotate, rotate_pairs


class Spins:
    """Tables of rotary positions. cos, sin: (P, E/2) each, as in mlx_port.layers.rope."""

    def __init__(self, rotation: Rotation):
        cos, sin = rotation
        self.table = mx.stack([cos, sin], axis=1)  # (P, 2, E/2)
        mx.eval(self.table)  # now: a thread that speaks later may be another

    def __call__(self, positions: np.ndarray) -> mx.array:
        """Return the tables of each row's position, (R, 2, E/2), or of the one position of all rows,
        (1, 2, E/2). positions: (R,).
        """
        first = int(positions[0])
        if (positions == first).all():
            return self.table[first : first + 1]
        return self.table[mx.array(positions)]


def rotate_heads(x: mx.array, spin: mx.array, heads: int, *, pairs: bool) -> tuple[mx.array, mx.array]:
    """Rotate queries and keys of a joined product, and lay out keys with values.

    x: (R, (H + 2 K) E).
    spin: from Spins.
    pairs: as rotate_pairs does, else as rotate.
    → queries (R, H, 1, E); keys and values (2, R, K, 1, E).
    """
    if source.passes(kernel.trial, x.dtype, pairs):
        return kernel.rotate_heads(x, spin, heads, pairs=pairs)
    parts = x.reshape(len(x), -1, 1, 2 * spin.shape[-1])
    kv_heads = (parts.shape[1] - heads) // 2
    rotated = _rotated(parts[:, : heads + kv_heads], spin, pairs=pairs)
    return rotated[:, :heads], mx.stack([rotated[:, heads:], parts[:, heads + kv_heads :]])


def rotate_queries(x: mx.array, spin: mx.array) -> mx.array:
    """Rotate queries by themselves. (B, H E) → (B, H, 1, E)."""
    if source.passes(kernel.trial, x.dtype, False):
        return kernel.rotate_queries(x, spin)
    return _rotated(x.reshape(len(x), -1, 1, 2 * spin.shape[-1]), spin, pairs=False)


def _rotated(x: mx.array, spin: mx.array, *, pairs: bool) -> mx.array:
    rotation = spin[:, 0][:, None, None], spin[:, 1][:, None, None]
    return (rotate_pairs if pairs else rotate)(x, rotation)
