"""MARS5's autoregressive network for one row of every text, with few launches: joined weights and compiled
parts. Rounded where the layers round.

Upstream: Camb-ai/MARS5-TTS@84697c8 (AGPL-3.0); written from a description, none of its code was used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import mlx.core as mx
import numpy as np

from mlx_port.kernels.source import on_gpu
from mlx_port.layers.norm import RMSNorm
from mlx_port.layers.row_cache import RowCache, RowPositions
from mlx_port.mars5.codec_lm import Block, CodecLM
from mlx_port.steps.add_norm import add_norm
from mlx_port.steps.chain import chain
from mlx_port.steps.joined import joined
from mlx_port.steps.kept import kept
from mlx_port.steps.row_keys import attend_cached
from mlx_port.steps.rows import independent, independent_on_cpu
from mlx_port.steps.spin import Spins, turn

Product = Callable[[mx.array], mx.array]


@dataclass(frozen=True, eq=False)
class CodecLMLayer:
    """One layer's weights, those of parallel products joined."""

    norms: tuple[RMSNorm, RMSNorm]
    qkv: Product
    out: Product
    gate_up: Product
    down: Product


class FusedCodecLM:
    """The network's weights, applied to one id of each row."""

    def __init__(self, network: CodecLM):
        self.network, self.config = network, network.config
        self.layers = [_layer(block) for block in network.ar.layers]
        self.head = independent_on_cpu(network.ar.output)
        self.scale = self.config.head_dim**-0.5
        self.start = chain(self._start)
        self.ends = [chain(partial(self._end, index)) for index in range(len(self.layers))]

    def next_logits(self, tokens: mx.array, spin: mx.array, cache: Sequence[RowCache]) -> mx.array:
        """Compute logits for the id after each of `tokens`. (R, 1) → (R, V), float32.

        spin: of the rows' positions, from mlx_port.steps.spin.Spins.
        """
        x, queries, fresh = self.start(tokens, spin)
        for end, rows in zip(self.ends, cache, strict=True):
            keys, values = rows.extend(*(part.squeeze(0) for part in mx.split(fresh, 2)))
            attended = attend_cached(queries, keys, values, rows.at, self.scale)
            x, queries, fresh = end(x, attended, spin)
        return x

    def try_kernels(self) -> None:
        """Run the trials of all kernels that texts use: build a step's graph, but do not run it."""
        at, kind = RowPositions(1), self.network.embed.weight.dtype
        at.level(0)
        shape = 1, self.config.num_attention_heads, 1, self.config.head_dim
        cache = [RowCache(mx.zeros(shape, kind), mx.zeros(shape, kind), at) for _ in self.layers]
        spins = Spins(self.network.positions(1)(0, 1))
        self.next_logits(mx.zeros((1, 1), mx.int32), spins(np.zeros(1, np.int32)), cache)

    def _start(self, tokens: mx.array, spin: mx.array) -> tuple[mx.array, mx.array, mx.array]:
        """Embed ids; then as `_end`."""
        x = self.network.embed(tokens[:, 0])
        return x, *self._heads(0, self.layers[0].norms[0](x), spin)

    def _end(
        self, index: int, x: mx.array, attended: mx.array, spin: mx.array
    ) -> tuple[mx.array, mx.array, mx.array]:
        """Add a layer's attention and feed-forward. → rows (R, D), the next layer's queries, keys and values.

        After the last layer: logits, and nothing else of use.
        """
        layer = self.layers[index]
        x, normed = add_norm(x, layer.out(attended.flatten(1)), layer.norms[1], x.dtype)
        gate, up = mx.split(layer.gate_up(normed), 2, axis=-1)
        last = index + 1 == len(self.layers)
        norm = self.network.ar.norm if last else self.layers[index + 1].norms[0]
        x, normed = add_norm(x, layer.down(gate * mx.sigmoid(gate) * up), norm, x.dtype)
        if last:
            return self.head(normed).astype(mx.float32), attended, attended
        return x, *self._heads(index + 1, normed, spin)

    def _heads(self, index: int, normed: mx.array, spin: mx.array) -> tuple[mx.array, mx.array]:
        return turn(self.layers[index].qkv(normed), spin, self.config.num_attention_heads, pairs=True)


def fused(network: CodecLM) -> FusedCodecLM:
    """Return the network's form for single ids. It joins the weights of parallel products; the network's own
    become views, under their names.
    """
    return kept(network, "fused", lambda: FusedCodecLM(network))


def try_kernels(network: CodecLM) -> None:
    """Run the trials of the kernels that texts use; without effect on a CPU."""
    if on_gpu():
        fused(network).try_kernels()


def _layer(block: Block) -> CodecLMLayer:
    attention, feed = block.attention, block.feed_forward
    return CodecLMLayer(
        (block.attention_norm, block.ffn_norm),
        independent(joined((attention.wq, attention.wk, attention.wv))),
        independent(attention.wo),
        independent(joined((feed.w1, feed.w3))),
        independent(feed.w2),
    )
