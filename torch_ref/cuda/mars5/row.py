"""The blocks of CodecLM for one row whose position is stored on the device, for captured steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

from torch import Tensor

from torch_ref.cuda import rows as row_kernels
from torch_ref.cuda.attention import attend, workspace
from torch_ref.cuda.joined import joined
from torch_ref.layers.rope import RotaryPositions
from torch_ref.layers.row_cache import RowCache
from torch_ref.mars5.codec_lm import Block, CodecLM

MOST_POSITIONS = 2**31  # more than any table has


class FusedRow:
    """One row through kernels: five launches per block, with the same roundings as the layers."""

    def __init__(
        self, network: CodecLM, cache: Sequence[RowCache], rotary: RotaryPositions, position: Tensor
    ):
        """cache: of one row.  position: (1,) int64, the row's; owned by the caller."""
        self.network, self.cache, self.position = network, cache, position
        self.tables = rotary(0, MOST_POSITIONS)
        rows, heads, _, width = cache[0].keys.shape
        self.work, self.scale = workspace(rows, heads, heads, width, position.device), 1 / math.sqrt(width)
        blocks = cast(list[Block], list(network.ar.layers))
        self.joined = [joined((b.attention.wq, b.attention.wk, b.attention.wv)) for b in blocks]

    def logits(self, x: Tensor) -> Tensor:
        """Compute logits after the row; overwrites it. (1, D) → (1, V), in the network's dtype."""
        blocks = cast(list[Block], self.network.ar.layers)
        for block, rows, weight in zip(blocks, self.cache, self.joined, strict=True):
            attention, feed, norm = block.attention, block.feed_forward, block.attention_norm
            projected = row_kernels.normed_linear(x, norm.weight, norm.eps, weight)
            attended = attend(
                projected, self.position, rows.keys, rows.values, self.work, scale=self.scale,
                rotation=self.tables, pairing="neighbors",
            )  # fmt: skip
            row_kernels.add_linear(x, attended, attention.wo.weight)
            norm = block.ffn_norm
            inner = row_kernels.gated_linear(x, norm.weight, norm.eps, feed.w1.weight, feed.w3.weight)
            row_kernels.add_linear(x, inner, feed.w2.weight)
        norm = self.network.ar.norm
        weight = self.network.ar.output.weight
        return row_kernels.normed_linear(x, norm.weight, norm.eps, weight)
