"""Norms over the last axis, or over groups of channels, computed in float32 and cast back last."""

from __future__ import annotations

import mlx.core as mx
from mlx import nn

BLOCK = 128  # time steps summed at once


class RMSNorm(nn.Module):
    """x / sqrt(mean(x²) + eps) · weight over the last axis. (..., D) → same.

    The weight stays float32 for any dtype of the network, and the product with it is float32 too.
    Source: nari-labs/dia layers.py@876125e (transformers casts to the network's dtype before the weight).
    """

    def __init__(self, width: int, eps: float):
        super().__init__()
        self.eps = eps
        self.weight = mx.ones((width,))

    def __call__(self, x: mx.array) -> mx.array:
        # a float32 weight makes the fused norm float32 throughout
        return mx.fast.rms_norm(x, self.weight, self.eps).astype(x.dtype)


class LayerNorm(nn.Module):
    """(x - mean) / sqrt(variance + eps) · weight + bias over the last axis. (..., D) → same.

    Weight and bias stay float32 for any dtype of the network, like RMSNorm's weight.
    """

    def __init__(self, width: int, eps: float):
        super().__init__()
        self.eps = eps
        self.weight = mx.ones((width,))
        self.bias = mx.zeros((width,))

    def __call__(self, x: mx.array) -> mx.array:
        return mx.fast.layer_norm(x, self.weight, self.bias, self.eps).astype(x.dtype)


class GroupNorm(nn.Module):
    """(x - mean) / sqrt(variance + eps) · weight + bias, statistics over a group's channels and all of time.

    (B, T, C) → same. Weight and bias stay float32 for any dtype of the network. mlx.nn's own loses half the
    digits over 3 s of sound on the CPU, which sums from end to end.
    """

    def __init__(self, groups: int, width: int, eps: float):
        super().__init__()
        self.groups, self.eps = groups, eps
        self.weight = mx.ones((width,))
        self.bias = mx.zeros((width,))

    def __call__(self, x: mx.array) -> mx.array:
        wide = x.astype(mx.float32)
        centered = wide - self._group_mean(wide)
        scale = mx.rsqrt(self._group_mean(centered.square()) + self.eps)
        return (centered * (scale * self.weight) + self.bias).astype(x.dtype)

    def _group_mean(self, x: mx.array) -> mx.array:
        """(B, T, C) → (B, 1, C), the same for all channels of a group; summed block by block."""
        batch, steps, width = x.shape
        blocks = mx.pad(x, [(0, 0), (0, -steps % BLOCK), (0, 0)]).reshape(batch, -1, BLOCK, width)
        sums = blocks.sum(axis=2).sum(axis=1).reshape(batch, self.groups, -1)
        means = sums.sum(axis=-1, keepdims=True) / (steps * sums.shape[-1])
        return mx.broadcast_to(means, sums.shape).reshape(batch, 1, width)
