"""MetaVoice's first stage for one row of every text, with few launches: joined weights and compiled parts.

Rounded where the layers round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import mlx.core as mx
from mlx import nn

from mlx_port.kernels.source import on_gpu
from mlx_port.layers.row_cache import RowCache, RowPositions
from mlx_port.metavoice.first_stage import Block, FirstStage, RMSNorm
from mlx_port.steps.add_norm import add_norm
from mlx_port.steps.chain import chain
from mlx_port.steps.joined import joined
from mlx_port.steps.kept import kept
from mlx_port.steps.row_keys import attend_cached
from mlx_port.steps.rows import independent, independent_on_cpu

Product = Callable[[mx.array], mx.array]
Heads = tuple[mx.array, mx.array, mx.array]  # queries, keys and values, (R, H, 1, E) each


@dataclass(frozen=True, eq=False)
class FirstStageLayer:
    """One layer's weights, those of parallel products joined."""

    norms: tuple[RMSNorm, RMSNorm]
    qkv: Product
    out: Product
    gate_up: Product
    down: Product


class FusedFirstStage:
    """The network's weights, applied to one id of each row."""

    def __init__(self, network: FirstStage):
        self.network, self.config = network, network.config
        self.layers = [_layer(block) for block in network.transformer.h]
        self.head = _head(network)
        self.scale = self.config.head_dim**-0.5
        self.start = chain(self._start)
        self.ends = [chain(partial(self._end, index)) for index in range(len(self.layers))]

    def next_logits(self, tokens: mx.array, speakers: mx.array, cache: Sequence[RowCache]) -> mx.array:
        """Compute logits for the id after each of `tokens`. (R, 1), (R, 1, D) → (R, V) float32."""
        start, weight = cache[0].length, self.network.transformer.wpe.weight
        positions = weight[start : start + 1] if isinstance(start, int) else weight[start].squeeze(1)
        x, *heads = self.start(tokens, speakers, positions)
        for end, rows in zip(self.ends, cache, strict=True):
            queries, keys, values = heads
            keys, values = rows.extend(keys, values)
            x, *heads = end(x, attend_cached(queries, keys, values, rows.at, self.scale))
        return x

    def try_kernels(self) -> None:
        """Run the trials of all kernels that texts use: build a step's graph, but do not run it."""
        at, kind = RowPositions(1), self.network.transformer.wpe.weight.dtype
        at.level(0)
        shape = 1, self.config.num_attention_heads, 1, self.config.head_dim
        cache = [RowCache(mx.zeros(shape, kind), mx.zeros(shape, kind), at) for _ in self.layers]
        speakers = mx.zeros((1, 1, self.config.hidden_size), kind)
        self.next_logits(mx.zeros((1, 1), mx.int32), speakers, cache)

    def _start(self, tokens: mx.array, speakers: mx.array, positions: mx.array) -> tuple[mx.array, ...]:
        """Embed ids; then as `_end`."""
        x = self.network.transformer.wtes[0](tokens[:, 0]) + positions + speakers[:, 0]
        x = x.astype(mx.float32) if x.dtype == mx.float16 else x
        return x, *self._heads(0, self.layers[0].norms[0](x))

    def _end(self, index: int, x: mx.array, attended: mx.array) -> tuple[mx.array, ...]:
        """Add a layer's attention and feed-forward. → rows (R, D), the next layer's queries, keys and values.

        After the last layer: only logits.
        """
        layer = self.layers[index]
        x, normed = self._sum(x, layer.out(attended.flatten(1)), layer.norms[1])
        gate, up = mx.split(layer.gate_up(normed), 2, axis=-1)
        added = layer.down(gate * mx.sigmoid(gate) * up)
        if index + 1 == len(self.layers):
            return (self.head(self._sum(x, added, self.network.transformer.ln_f)[1]),)
        x, normed = self._sum(x, added, self.layers[index + 1].norms[0])
        return x, *self._heads(index + 1, normed)

    def _heads(self, index: int, normed: mx.array) -> Heads:
        parts = self.layers[index].qkv(normed).reshape(len(normed), 3, self.config.num_attention_heads, 1, -1)
        queries, keys, values = (part.squeeze(1) for part in mx.split(parts, 3, axis=1))
        return queries, keys, values

    def _sum(self, x: mx.array, added: mx.array, norm: RMSNorm) -> tuple[mx.array, mx.array]:
        return add_norm(x, added, norm, norm.weight.dtype)


def fused(network: FirstStage) -> FusedFirstStage:
    """Return the network's form for single ids. It joins the weights of parallel products; the network's own
    become views, under their names.
    """
    return kept(network, "fused", lambda: FusedFirstStage(network))


def try_kernels(network: FirstStage) -> None:
    """Run the trials of the kernels that texts use; without effect on a CPU."""
    if on_gpu():
        fused(network).try_kernels()


def _head(network: FirstStage) -> Product:
    """Return the network's head: products with the token embedding."""
    whole = nn.Linear(1, 1, bias=False)
    whole.weight = network.transformer.wtes[0].weight
    exact = independent_on_cpu(whole)
    return network.head if exact is whole else exact


def _layer(block: Block) -> FirstStageLayer:
    gates = block.mlp.swiglu
    return FirstStageLayer(
        (block.ln_1, block.ln_2),
        independent(block.attn.c_attn),
        independent(block.attn.c_proj),
        independent(joined((gates.w1, gates.w3))),
        independent(block.mlp.c_proj),
    )
