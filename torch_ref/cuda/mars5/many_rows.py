"""The blocks of CodecLM for one row of many texts, each at its own position: matrix products, and kernels
for the work between them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import torch.nn.functional as F
from torch import Tensor

from torch_ref.cuda import pointwise
from torch_ref.cuda import rows as row_kernels
from torch_ref.cuda.attention import attend, workspace
from torch_ref.cuda.joined import joined
from torch_ref.layers.rope import RotaryPositions
from torch_ref.layers.row_cache import RowCache
from torch_ref.limits.remedies import at_least_float32
from torch_ref.mars5.codec_lm import Block, CodecLM

MOST_POSITIONS = 2**31  # more than any table has


class Mars5ManyRows:
    """From rows to logits, rounded as in the layers. positions: (R,) int64, read at a call."""

    def __init__(
        self, network: CodecLM, caches: Sequence[RowCache], rotary: RotaryPositions, positions: Tensor
    ):
        self.network, self.caches, self.positions = network, caches, positions
        self.tables = rotary(0, MOST_POSITIONS)
        rows, heads, _, width = caches[0].keys.shape
        self.work = workspace(rows, heads, heads, width, positions.device)
        self.scale = 1 / math.sqrt(width)
        self.blocks = cast(list[Block], list(network.ar.layers))
        self.qkv = [joined((b.attention.wq, b.attention.wk, b.attention.wv)) for b in self.blocks]
        self.gate_up = [joined((b.feed_forward.w1, b.feed_forward.w3)) for b in self.blocks]

    def __call__(self, x: Tensor) -> Tensor:
        """Compute logits; overwrites x. (R, D) → (R, V), at least float32."""
        added = None
        for block, cache, qkv, gate_up in zip(self.blocks, self.caches, self.qkv, self.gate_up, strict=True):
            norm = block.attention_norm
            projected = F.linear(pointwise.add_norm(x, added, norm.weight, norm.eps), qkv)
            attended = attend(
                projected, self.positions, cache.keys, cache.values, self.work, scale=self.scale,
                rotation=self.tables, pairing="neighbors",
            )  # fmt: skip
            added, norm = F.linear(attended, block.attention.wo.weight), block.ffn_norm
            inner = F.linear(pointwise.add_norm(x, added, norm.weight, norm.eps), gate_up)
            added = F.linear(pointwise.gated(inner), block.feed_forward.w2.weight)
        norm = self.network.ar.norm
        y = pointwise.add_norm(x, added, norm.weight, norm.eps)
        return at_least_float32(F.linear(y, self.network.ar.output.weight))


def runs(network: CodecLM) -> bool:
    """Return whether the kernels support this network."""
    return row_kernels.usable(network.embed.weight, network.config.head_dim)
