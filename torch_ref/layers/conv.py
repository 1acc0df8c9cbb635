"""1-D convolutions over (B, C, T), in PyTorch's own layout."""

from __future__ import annotations

from torch import nn


class Conv1d(nn.Conv1d):
    """Convolution with bias and symmetric zero padding. (B, C, T) → (B, C', T')."""


class ConvTranspose1d(nn.ConvTranspose1d):
    """Transposed convolution with bias; `padding` outputs are cut at each end. (B, C, T) → (B, C', T')."""
