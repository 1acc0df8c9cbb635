"""Low-rank adaptation: a trained product of two narrow layers, added to each frozen linear layer.

Source: Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", arXiv:2106.09685.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

SCALE = 2.0  # factor of the product


class LowRank(nn.Module):
    """x W^T + SCALE x A^T B^T. (..., in) → (..., out). B starts at 0, so the output is unchanged."""

    def __init__(self, base: nn.Linear, rank: int):
        super().__init__()
        self.base = base.requires_grad_(False)
        like = {"device": base.weight.device, "dtype": base.weight.dtype}
        self.a = nn.Parameter(torch.empty(rank, base.in_features, **like))
        self.b = nn.Parameter(torch.zeros(base.out_features, rank, **like))
        nn.init.kaiming_uniform_(self.a, a=math.sqrt(5))

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + SCALE * (x @ self.a.T) @ self.b.T

    @torch.no_grad()
    def merged(self) -> nn.Linear:
        """Merge the product into the base layer and return it."""
        self.base.weight += SCALE * self.b @ self.a
        return self.base


def adapt(network: nn.Module, rank: int) -> None:
    """Freeze a network and replace every linear layer with a LowRank."""
    network.requires_grad_(False)
    for module in list(network.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear):
                setattr(module, name, LowRank(child, rank))


def merge(network: nn.Module) -> None:
    """Undo `adapt`, with the learned products merged."""
    for module in list(network.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, LowRank):
                setattr(module, name, child.merged())
