"""Norms over the last axis, or over groups of channels, computed in float32 and cast back last."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torch_ref.limits.remedies import at_least_float32


class RMSNorm(nn.Module):
    """x / sqrt(mean(x²) + eps) · weight over the last axis. (..., D) → same.

    The weight stays float32 for any dtype of the network, and the product with it is float32 too.
    Source: nari-labs/dia layers.py@876125e (transformers casts to the network's dtype before the weight).
    """

    def __init__(self, width: int, eps: float):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(at_least_float32(x), self.weight.shape, self.weight, self.eps).to(x.dtype)


class LayerNorm(nn.Module):
    """(x - mean) / sqrt(variance + eps) · weight + bias over the last axis. (..., D) → same.

    Weight and bias stay float32 for any dtype of the network, like RMSNorm's weight.
    """

    def __init__(self, width: int, eps: float):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        wide = at_least_float32(x)
        return F.layer_norm(wide, self.weight.shape, self.weight, self.bias, self.eps).to(x.dtype)


class GroupNorm(nn.Module):
    """(x - mean) / sqrt(variance + eps) · weight + bias, statistics over a group's channels and all of time.

    (B, C, T) → same. Weight and bias stay float32 for any dtype of the network.
    """

    def __init__(self, groups: int, width: int, eps: float):
        super().__init__()
        self.groups, self.eps = groups, eps
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        wide = at_least_float32(x)
        return F.group_norm(wide, self.groups, self.weight, self.bias, self.eps).to(x.dtype)
