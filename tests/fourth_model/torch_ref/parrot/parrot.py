"""Parrot's network."""

from __future__ import annotations

from torch import Tensor, nn

from tts_core.parrot.model import LOGITS, ParrotConfig


class Parrot(nn.Module):
    """Logits of the next code. (B, T, D) → (B, T, V)."""

    def __init__(self, config: ParrotConfig):
        super().__init__()
        self.config = config
        self.norm = nn.RMSNorm(config.width, eps=1e-5)
        self.beak = nn.Linear(config.width, LOGITS, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.beak(self.norm(x))
