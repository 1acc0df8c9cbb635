"""The blocks of CodecLM for one row whose position is stored on the device, for captured steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor

from torch_ref.cuda import rows as row_kernels
from torch_ref.cuda.attention import attend, workspace
from torch_ref.cuda.fixed_cache import FixedCache
from torch_ref.cuda.joining import joined
from torch_ref.layers.cache import RingCache
from torch_ref.layers.norm import at_least_float32
from torch_ref.layers.rope import RotaryPositions
from torch_ref.mars5.codec_lm import Block, CodecLM

MOST_POSITIONS = 2**31  # more than any table has


class PlainRow:
    """One row through the network's own layers, on the ring buffers."""

    def __init__(
        self, network: CodecLM, cache: Sequence[RingCache], rotary: RotaryPositions, position: Tensor
    ):
        """cache: after the prompt.  position: (1,) int64, the row's; owned by the caller."""
        self.network, self.rotary, self.position = network, rotary, position
        self.capacity = cache[0].capacity
        self.places = torch.arange(self.capacity, device=position.device)
        self.slot = torch.zeros_like(position)
        self.mask = torch.zeros(1, 1, 1, self.capacity, dtype=torch.bool, device=position.device)
        buffers = [rows.buffers for rows in cache if rows.buffers is not None]
        self.cache = [FixedCache(*both, self.slot, self.mask) for both in buffers]

    def __call__(self, row: Tensor) -> Tensor:
        """Compute logits after the row. (1, 1, D) → (1, V), at least float32."""
        self.slot.copy_(self.position % self.capacity)
        self.mask.copy_(self.places <= self.position)
        return self.network.next_logits(row, self.rotary(self.position, 1), self.cache)


class FusedRow:
    """One row through kernels: five launches per block, with the same roundings as the layers."""

    def __init__(
        self, network: CodecLM, cache: Sequence[RingCache], rotary: RotaryPositions, position: Tensor
    ):
        """Arguments as in PlainRow."""
        self.network, self.cache, self.position = network, cache, position
        self.tables = rotary(0, MOST_POSITIONS)
        assert cache[0].buffers is not None
        rows, heads, _, width = cache[0].buffers[0].shape
        self.work, self.scale = workspace(rows, heads, heads, width, position.device), 1 / math.sqrt(width)
        blocks = cast(list[Block], list(network.ar.layers))
        self.joined = [joined((b.attention.wq, b.attention.wk, b.attention.wv)) for b in blocks]

    def __call__(self, row: Tensor) -> Tensor:
        """Compute logits after the row. (1, 1, D) → (1, V), at least float32."""
        return at_least_float32(self.logits(row[:, 0].clone()))

    def logits(self, x: Tensor) -> Tensor:
        """Compute logits after the row; overwrites it. (1, D) → (1, V), in the network's dtype."""
        blocks = cast(list[Block], self.network.ar.layers)
        for block, rows, weight in zip(blocks, self.cache, self.joined, strict=True):
            attention, feed, norm = block.attention, block.feed_forward, block.attention_norm
            projected = row_kernels.normed_linear(x, norm.weight, norm.eps, weight)
            assert rows.buffers is not None
            keys, values = rows.buffers
            attended = attend(
                projected, self.position, keys, values, self.work, scale=self.scale, rotation=self.tables,
                pairing="neighbors",
            )  # fmt: skip
            row_kernels.add_linear(x, attended, attention.wo.weight)
            norm = block.ffn_norm
            inner = row_kernels.gated_linear(x, norm.weight, norm.eps, feed.w1.weight, feed.w3.weight)
            row_kernels.add_linear(x, inner, feed.w2.weight)
        norm = self.network.ar.norm
        weight = self.network.ar.output.weight
        return row_kernels.normed_linear(x, norm.weight, norm.eps, weight)


def runs(network: CodecLM) -> bool:
    """Return whether the kernels support this network."""
    return row_kernels.usable(network.embed.weight, network.config.head_dim)
