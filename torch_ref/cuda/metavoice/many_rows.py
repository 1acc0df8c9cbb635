"""The first stage's layers for one token of many rows, each at its own position: matrix products, and kernels
for the work between them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import torch.nn.functional as F
from torch import Tensor, nn

from torch_ref.cuda import pointwise
from torch_ref.cuda.attention import attend, workspace
from torch_ref.cuda.joined import joined
from torch_ref.layers.row_cache import RowCache
from torch_ref.metavoice.first_stage import Block, FirstStage, RMSNorm


class MetaVoiceManyRows:
    """From token vectors to logits, rounded as in the layers. positions: (R,) int64, read at a call."""

    def __init__(self, network: FirstStage, caches: Sequence[RowCache], positions: Tensor):
        self.network, self.caches, self.positions = network, caches, positions
        rows, heads, _, width = caches[0].keys.shape
        self.work = workspace(rows, heads, heads, width, positions.device)
        self.scale = 1 / math.sqrt(width)
        self.blocks = cast(list[Block], list(network.transformer.h))
        self.gate_up = [joined((block.mlp.swiglu.w1, block.mlp.swiglu.w3)) for block in self.blocks]

    def __call__(self, x: Tensor) -> Tensor:
        """Compute logits; overwrites x. (R, D) → (R, V), in the network's dtype."""
        added = None
        for block, cache, gate_up in zip(self.blocks, self.caches, self.gate_up, strict=True):
            projected = F.linear(self._norm(x, added, block.ln_1), block.attn.c_attn.weight)
            attended = attend(
                projected, self.positions, cache.keys, cache.values, self.work, scale=self.scale
            )
            added = F.linear(attended, block.attn.c_proj.weight)
            inner = F.linear(self._norm(x, added, block.ln_2), gate_up)
            added = F.linear(pointwise.gated(inner), block.mlp.c_proj.weight)
        table = cast(nn.Embedding, self.network.transformer.wtes[0])
        return F.linear(self._norm(x, added, self.network.transformer.ln_f), table.weight)

    def _norm(self, x: Tensor, added: Tensor | None, norm: RMSNorm) -> Tensor:
        return pointwise.add_norm(x, added, norm.weight, norm.eps).to(norm.weight.dtype)
