"""Parrot's network."""

from __future__ import annotations

import mlx.core as mx
from mlx import nn

from tts_core.parrot.model import LOGITS, ParrotConfig


class Parrot(nn.Module):
    """Logits of the next code. (B, T, D) → (B, T, V)."""

    def __init__(self, config: ParrotConfig):
        super().__init__()
        self.config = config
        self.norm = nn.RMSNorm(config.width, eps=1e-5)
        self.beak = nn.Linear(config.width, LOGITS, bias=False)

    def __call__(self, x: mx.array) -> mx.array:
        return self.beak(self.norm(x))
