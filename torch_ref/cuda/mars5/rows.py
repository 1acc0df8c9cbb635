"""The blocks of CodecLM on kernels, for one row of each text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

from torch import Tensor

from torch_ref.cuda.attention import workspace
from torch_ref.cuda.concatenated import concatenated
from torch_ref.cuda.fused_stack import FusedStack, StackLayer, StackMemory
from torch_ref.cuda.rows import usable
from torch_ref.layers.cache import RingCache
from torch_ref.layers.rope import RotaryPositions
from torch_ref.layers.row_cache import RowCache
from torch_ref.mars5.codec_lm import Block, CodecLM

MOST_POSITIONS = 2**31  # more than any table has


class Mars5Rows:
    """From rows to logits, rounded as in the layers.

    positions: (R,) int64, read at a call; owned by the caller.
    most_few: as in FusedStack.
    """

    def __init__(
        self,
        network: CodecLM,
        caches: Sequence[RowCache],
        rotary: RotaryPositions,
        positions: Tensor,
        *,
        most_few: int,
    ):
        self.network, self.positions = network, positions
        rows, heads, _, width = caches[0].keys.shape
        work = workspace(rows, heads, heads, width, positions.device)
        self.memory = StackMemory([cache.keys for cache in caches], [cache.values for cache in caches], work)
        self.stack = FusedStack(
            [_layer(block) for block in cast(list[Block], list(network.ar.layers))],
            network.config.norm_eps,
            1 / math.sqrt(width),
            rotary(0, MOST_POSITIONS),
            pairing="neighbors",
            most_few=most_few,
        )

    def __call__(self, x: Tensor) -> Tensor:
        """Compute logits; overwrites x. (R, D) → (R, V), in the network's dtype."""
        return self.head(*self.stack.run(x, self.positions, self.positions, self.memory))

    def head(self, x: Tensor, added: Tensor | None = None) -> Tensor:
        """Compute logits of what the layers made, in the network's dtype. (R, D) → (R, V)."""
        return self.stack.norm_linear(x, added, self.network.ar.norm.weight, self.network.ar.output.weight)


class FirstRows(RingCache):
    """The cache of a text's first rows, which are read at once and kept in a row of a batch.

    window: as in RingCache.  cache: of the batch, whose capacity is the text's.
    """

    def __init__(self, window: int, cache: RowCache, row: int):
        super().__init__(window, cache.at.capacity)
        self.cache, self.row = cache, row

    def extend(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Keep the last rows and return all. (1, K, T, E) each → same."""
        self.length = keys.shape[2]
        latest = [rows if self.length <= self.capacity else self.latest(rows) for rows in (keys, values)]
        self.cache.fill(self.row, latest[0][0], latest[1][0])
        self.buffers = self.cache.keys, self.cache.values
        return keys, values


def runs(network: CodecLM) -> bool:
    """Return whether the kernels support this network."""
    return usable(network.embed.weight, network.config.head_dim)


def _layer(block: Block) -> StackLayer:
    attention, feed = block.attention, block.feed_forward
    return StackLayer(
        before=block.attention_norm.weight,
        after=block.ffn_norm.weight,
        heads=None,
        qkv=concatenated((attention.wq, attention.wk, attention.wv)),
        out=attention.wo.weight,
        gate_up=concatenated((feed.w1, feed.w3)),
        down=feed.w2.weight,
    )
