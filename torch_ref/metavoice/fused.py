"""The first stage's layers for one token of a few rows, in six kernels a layer.

Differs from the plain layers: sums and what stands between a norm and its product are float32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor

from torch_ref.layers.cache import FixedCache
from torch_ref.metavoice import kernels
from torch_ref.metavoice.first_stage import Block, FirstStage

MOST_ROWS = 3
CAPABILITY = (8, 0)  # the lowest that Triton supports
# The best measured (H200, full size, two rows, bfloat16): all layers in 1.398 ms; 4 rows with 8 warps 1.409,
# 2 rows with 8 warps 1.521. Attention in 16 shares of 32 keys at once saved 0.012 ms over 8 of 64.
PROGRAMS = {  # kernel → rows of the weight that one program takes, and its warps
    "project": (2, 4),
    "add_linear": (2, 4),
    "gate_linear": (2, 4),
    "norm_linear": (2, 4),
}
MOST_COLUMNS = 2048  # of a weight, at once
SHARES, KEYS_AT_ONCE, WARPS = 16, 32, 4  # of attention


class FusedLayers:
    """Token vectors to logits, over caches that lie still. Made anew for every set of caches."""

    def __init__(self, network: FirstStage, caches: Sequence[FixedCache], rows: int):
        self.network, self.caches, self.rows = network, caches, rows
        config, weight = network.config, network.transformer.wpe.weight
        self.heads = rows * config.num_attention_heads
        self.queries = weight.new_empty(rows, config.hidden_size)
        self.attended = torch.empty_like(self.queries)
        self.gated = weight.new_empty(rows, config.intermediate_size)
        new = {"dtype": torch.float32, "device": weight.device}
        self.sums = torch.empty(self.heads, SHARES, config.head_dim, **new)
        self.peaks, self.totals = (torch.empty(self.heads, SHARES, **new) for _ in range(2))
        self.logits = torch.empty(rows, config.vocab_size, **new)

    def __call__(self, x: Tensor) -> Tensor:
        """(R, 1, D), which is overwritten → (R, V) float32, overwritten by the next call."""
        for block, cache in zip(self.network.transformer.h, self.caches, strict=True):
            self._attention(x, cast(Block, block), cache)
            self._feed_forward(x, cast(Block, block))
        norm, config = self.network.transformer.ln_f, self.network.config
        table = cast(torch.nn.Embedding, self.network.transformer.wtes[0]).weight
        grid, blocks = self._blocks("norm_linear", config.vocab_size, config.hidden_size)
        kernels.norm_linear[grid](
            x, norm.weight, table, self.logits, config.vocab_size, norm.eps, config.hidden_size, **blocks
        )
        return self.logits

    def _attention(self, x: Tensor, block: Block, cache: FixedCache) -> None:
        config, norm, attention = self.network.config, block.ln_1, block.attn
        width, head, capacity = config.hidden_size, config.head_dim, cache.keys.shape[2]
        grid, blocks = self._blocks("project", 3 * width, width)
        kernels.project[grid](
            x,
            norm.weight,
            attention.c_attn.weight,
            self.queries,
            cache.keys,
            cache.values,
            cache.length,
            capacity,
            norm.eps,
            width,
            head,
            **blocks,
        )
        partial = self.sums, self.peaks, self.totals
        kernels.attend[(self.heads, SHARES)](
            self.queries,
            cache.keys,
            cache.values,
            cache.length,
            *partial,
            capacity,
            1 / math.sqrt(head),
            head,
            SHARES,
            KEYS_AT_ONCE,
            num_warps=WARPS,
        )
        kernels.join[(self.heads,)](*partial, self.attended, head, SHARES)
        self._add(self.attended, attention.c_proj.weight, x)

    def _feed_forward(self, x: Tensor, block: Block) -> None:
        config, norm, mlp = self.network.config, block.ln_2, block.mlp
        inner, width = config.intermediate_size, config.hidden_size
        grid, blocks = self._blocks("gate_linear", inner, width)
        kernels.gate_linear[grid](
            x,
            norm.weight,
            mlp.swiglu.w1.weight,
            mlp.swiglu.w3.weight,
            self.gated,
            inner,
            norm.eps,
            width,
            **blocks,
        )
        self._add(self.gated, mlp.c_proj.weight, x)

    def _add(self, x: Tensor, weight: Tensor, residual: Tensor) -> None:
        rows, columns = weight.shape
        grid, blocks = self._blocks("add_linear", rows, columns)
        kernels.add_linear[grid](x, weight, residual, rows, columns, **blocks)

    def _blocks(self, kernel: str, rows: int, columns: int) -> tuple[tuple[int], dict[str, int]]:
        """How many programs a kernel takes for a weight, and what each of them does."""
        at_once, warps = PROGRAMS[kernel]
        block = min(MOST_COLUMNS, 1 << (columns - 1).bit_length())
        return (-(-rows // at_once),), {"R": self.rows, "N": at_once, "BLOCK": block, "num_warps": warps}


def fused_layers(network: FirstStage, caches: Sequence[FixedCache], rows: int) -> FusedLayers | None:
    """The fused form where there is one: on a GPU that Triton knows, for few rows, without biases."""
    device, config = caches[0].keys.device, network.config
    if device.type != "cuda" or torch.version.hip is not None or kernels.triton is None:
        return None
    if torch.cuda.get_device_capability(device) < CAPABILITY or caches[0].keys.dtype == torch.float64:
        return None
    if rows > MOST_ROWS or config.bias or config.head_dim & (config.head_dim - 1):
        return None
    return FusedLayers(network, caches, rows)
