"""Rotary positions, half-split (component i pairs with i + E/2) or interleaved (2i pairs with 2i + 1)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from torch_ref.limits.remedies import at_least_float32
from tts_core.nn.positions import rope_table

Rotation = tuple[Tensor, Tensor]  # cos and sin, (T, E/2) each; of rows of their own (R, 1, T, E/2)


class RotaryPositions(nn.Module):
    """Rotary tables for positions 0 .. length-1, in units of `unit`, without weights."""

    _cos: Tensor
    _sin: Tensor

    def __init__(self, length: int, head_dim: int, theta: float, unit: float = 1.0):
        super().__init__()
        cos, sin = rope_table(length, head_dim, theta, unit=unit)
        self.register_buffer("_cos", torch.from_numpy(cos), persistent=False)
        self.register_buffer("_sin", torch.from_numpy(sin), persistent=False)

    def forward(self, start: int | Tensor, length: int) -> Rotation:
        """Return tables of `length` positions from `start`, or of those that a `start` on the device has."""
        if not isinstance(start, int):
            return self._cos[start], self._sin[start]
        return self._cos[start : start + length], self._sin[start : start + length]


def rotate(x: Tensor, rotation: Rotation) -> Tensor:
    """Rotate each pair by its position's angle, in float32. (B, H, T, E) → same."""
    cos, sin = rotation
    first, second = at_least_float32(x).chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(x.dtype)


def rotate_pairs(x: Tensor, rotation: Rotation) -> Tensor:
    """Rotate interleaved pairs: component 2i with component 2i + 1. (B, H, T, E) → same."""
    cos, sin = rotation
    first, second = at_least_float32(x).unflatten(-1, (-1, 2)).unbind(-1)
    rotated = torch.stack((first * cos - second * sin, second * cos + first * sin), dim=-1)
    return rotated.flatten(-2).to(x.dtype)
