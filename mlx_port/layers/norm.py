"""Norms over the last axis, computed in float32 and cast back last."""

from __future__ import annotations

import mlx.core as mx
from mlx import nn


class RMSNorm(nn.Module):
    """x / sqrt(mean(x²) + eps) · weight over the last axis. (..., D) → same.

    The weight stays float32 whatever the network's dtype, and the product with it is float32 too.
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

    Weight and bias stay float32 whatever the network's dtype, as RMSNorm's weight does.
    """

    def __init__(self, width: int, eps: float):
        super().__init__()
        self.eps = eps
        self.weight = mx.ones((width,))
        self.bias = mx.zeros((width,))

    def __call__(self, x: mx.array) -> mx.array:
        return mx.fast.layer_norm(x, self.weight, self.bias, self.eps).astype(x.dtype)
