"""Snake activations with learned logarithms."""

from __future__ import annotations

import mlx.core as mx
from mlx import nn

from mlx_port.kernels.sine import sine_squared


class LogSnake1d(nn.Module):
    """x + sin²(x·e^alpha) / e^beta, one alpha and beta a channel. (B, T, C) → same.

    Lee et al. 2023, "BigVGAN", arXiv:2206.04658, appendix; their `SnakeBeta` in log scale.
    """

    def __init__(self, channels: int):
        super().__init__()
        self.alpha = mx.zeros((channels,))
        self.beta = mx.zeros((channels,))

    def __call__(self, x: mx.array) -> mx.array:
        a, b = mx.exp(self.alpha), mx.exp(self.beta)
        return x + mx.reciprocal(b + 1e-9) * sine_squared(a * x)
