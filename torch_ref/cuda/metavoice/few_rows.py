"""The first stage's layers for one token of a few rows, as kernels: five launches per layer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

from torch import Tensor, nn

from torch_ref.cuda import rows as row_kernels
from torch_ref.cuda.attention import attend, workspace
from torch_ref.layers.row_cache import RowCache
from torch_ref.metavoice.first_stage import Block, FirstStage


class MetaVoiceFewRows:
    """From token vectors to logits, rounded as in the layers. positions: (R,) int64, read at a call."""

    def __init__(self, network: FirstStage, caches: Sequence[RowCache], positions: Tensor):
        self.network, self.caches, self.positions = network, caches, positions
        rows, heads, _, width = caches[0].keys.shape
        self.work = workspace(rows, heads, heads, width, positions.device)
        self.scale = 1 / math.sqrt(width)

    def __call__(self, x: Tensor) -> Tensor:
        """Compute logits; overwrites x. (R, D) → (R, V), in the network's dtype."""
        for block, cache in zip(cast(list[Block], self.network.transformer.h), self.caches, strict=True):
            attention, mlp = block.attn, block.mlp
            norm = block.ln_1
            projected = row_kernels.normed_linear(x, norm.weight, norm.eps, attention.c_attn.weight)
            attended = attend(
                projected, self.positions, cache.keys, cache.values, self.work, scale=self.scale
            )
            row_kernels.add_linear(x, attended, attention.c_proj.weight)
            norm, gate = block.ln_2, mlp.swiglu
            inner = row_kernels.gated_linear(x, norm.weight, norm.eps, gate.w1.weight, gate.w3.weight)
            row_kernels.add_linear(x, inner, mlp.c_proj.weight)
        norm, table = self.network.transformer.ln_f, cast(nn.Embedding, self.network.transformer.wtes[0])
        return row_kernels.normed_linear(x, norm.weight, norm.eps, table.weight)
