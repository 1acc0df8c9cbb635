"""Gated feed-forward of a transformer's layer."""

from __future__ import annotations

from torch import Tensor, nn

from torch_ref.limits.independent import silu


class FeedForward(nn.Module):
    """Gated feed-forward: down(silu(gate) · up). (B, T, D) → same."""

    def __init__(self, width: int, inner: int):
        super().__init__()
        self.gate_proj = nn.Linear(width, inner, bias=False)
        self.up_proj = nn.Linear(width, inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(silu(self.gate_proj(x)) * self.up_proj(x))
