"""Rotary positions, half-split (component i pairs with i + E/2) or interleaved (2i pairs with 2i + 1)."""

from __future__ import annotations

import mlx.core as mx
from mlx import nn

from tts_core.nn.positions import rope_table

Rotation = tuple[mx.array, mx.array]  # cos and sin, (T, E/2) each; of rows of their own (R, 1, T, E/2)


class RotaryPositions(nn.Module):
    """Rotary tables for positions 0 .. length-1, in units of `unit`, without weights."""

    def __init__(self, length: int, head_dim: int, theta: float, unit: float = 1.0):
        super().__init__()
        cos, sin = rope_table(length, head_dim, theta, unit=unit)
        self._cos = mx.array(cos)
        self._sin = mx.array(sin)

    def __call__(self, start: int | mx.array, length: int) -> Rotation:
        """Return tables of `length` positions from `start`, or of those that a `start` on the device has."""
        if not isinstance(start, int):
            return self._cos[start], self._sin[start]
        return self._cos[start : start + length], self._sin[start : start + length]


def rotate(x: mx.array, rotation: Rotation) -> mx.array:
    """Rotate each pair by its position's angle, in float32. (B, H, T, E) → same."""
    cos, sin = rotation
    first, second = mx.split(x.astype(mx.float32), 2, axis=-1)
    return mx.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1).astype(x.dtype)


def rotate_pairs(x: mx.array, rotation: Rotation) -> mx.array:
    """Rotate interleaved pairs: component 2i with component 2i + 1. (B, H, T, E) → same."""
    cos, sin = rotation
    pairs = mx.unflatten(x.astype(mx.float32), -1, (-1, 2))
    first, second = pairs[..., 0], pairs[..., 1]
    rotated = mx.stack([first * cos - second * sin, second * cos + first * sin], axis=-1)
    return mx.flatten(rotated, -2).astype(x.dtype)
