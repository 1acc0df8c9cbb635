"""Snake activations with learned logarithms."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class LogSnake1d(nn.Module):
    """x + sin²(x·e^alpha) / e^beta, one alpha and beta a channel. (B, C, T) → same.

    Lee et al. 2023, "BigVGAN", arXiv:2206.04658, appendix; their `SnakeBeta` in log scale.
    """

    def __init__(self, channels: int):
        super().__init__()
        self.alpha = nn.Parameter(torch.zeros(channels))
        self.beta = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        a, b = self.alpha.exp()[:, None], self.beta.exp()[:, None]
        s = torch.sin(a * x)
        return x + (b + 1e-9).reciprocal() * s.square()
