"""The first stage's layers on kernels, for one token of each row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

from torch import Tensor, nn

from torch_ref.cuda.attention import workspace
from torch_ref.cuda.concatenated import concatenated
from torch_ref.cuda.fused_stack import FusedStack, StackLayer, StackMemory
from torch_ref.layers.row_cache import RowCache
from torch_ref.metavoice.first_stage import Block, FirstStage


class MetaVoiceRows:
    """From token vectors to logits, rounded as in the layers. positions: (R,) int64, read at a call."""

    def __init__(self, network: FirstStage, caches: Sequence[RowCache], positions: Tensor):
        self.transformer, self.positions = network.transformer, positions
        rows, heads, _, width = caches[0].keys.shape
        work = workspace(rows, heads, heads, width, positions.device)
        self.memory = StackMemory([cache.keys for cache in caches], [cache.values for cache in caches], work)
        blocks = [_layer(block) for block in cast(list[Block], list(network.transformer.h))]
        self.stack = FusedStack(blocks, network.config.norm_eps, 1 / math.sqrt(width), None)

    def __call__(self, x: Tensor) -> Tensor:
        """Compute logits; overwrites x. (R, D) → (R, V), in the network's dtype."""
        x, added = self.stack.run(x, self.positions, self.positions, self.memory)
        table = cast(nn.Embedding, self.transformer.wtes[0]).weight
        return self.stack.norm_linear(x, added, self.transformer.ln_f.weight, table)


def _layer(block: Block) -> StackLayer:
    attention, gates = block.attn, block.mlp.swiglu
    return StackLayer(
        before=block.ln_1.weight,
        after=block.ln_2.weight,
        heads=None,
        qkv=attention.c_attn.weight,
        out=attention.c_proj.weight,
        gate_up=concatenated((gates.w1, gates.w3)),
        down=block.mlp.c_proj.weight,
    )
