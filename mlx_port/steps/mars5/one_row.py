"""MARS5's autoregressive network for one row of every text, with few launches: joined weights and compiled
parts. Rounded where the layers round.

Upstream: Camb-ai/MARS5-TTS@84697c8 (AGPL-3.0); written from a description, none of its code was used.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx
import numpy as np

from mlx_port.layers.row_cache import RowCache
from mlx_port.mars5.codec_lm import Block, CodecLM
from mlx_port.steps.chain import chain
from mlx_port.steps.concatenated import concatenated
from mlx_port.steps.forms import built_once
from mlx_port.steps.fused_stack import FusedStack, StackLayer, attending, gated, trial_cache
from mlx_port.steps.rows import independent, independent_on_cpu
from mlx_port.steps.spin import Spins, rotate_heads
from mlx_port.steps.splitting import Heads


class FusedCodecLM:
    """The network's weights, applied to one id of each row."""

    def __init__(self, network: CodecLM):
        self.network, self.config = network, network.config
        self.kind = network.embed.weight.dtype
        layers = [self._layer(block) for block in network.ar.layers]
        self.stack = FusedStack(layers, network.ar.norm, self.kind, is_apart=True)
        self.head = independent_on_cpu(network.ar.output)
        self.scale = self.config.head_dim**-0.5
        self.start = chain(self._start)

    def next_logits(self, tokens: mx.array, spin: mx.array, cache: Sequence[RowCache]) -> mx.array:
        """Compute logits for the id after each of `tokens`. (R, 1) → (R, V), float32.

        spin: of the rows' positions, from mlx_port.steps.spin.Spins.
        """
        hidden = self.stack.run(self.start(tokens, spin), spin, attending(cache, self.scale))
        return self.head(hidden).astype(mx.float32)

    def try_kernels(self) -> None:
        """Run the trials of all kernels that texts use: build a step's graph, but do not run it."""
        heads, width = self.config.num_attention_heads, self.config.head_dim
        cache = trial_cache(len(self.stack.layers), heads, width, self.kind)
        spins = Spins(self.network.positions(1)(0, 1))
        self.next_logits(mx.zeros((1, 1), mx.int32), spins(np.zeros(1, np.int32)), cache)

    def _start(self, tokens: mx.array, spin: mx.array) -> tuple[mx.array, ...]:
        """Embed ids, and begin the first layer."""
        return self.stack.start(self.network.embed(tokens[:, 0]), spin)

    def _split(self, made: mx.array, spin: mx.array | None) -> Heads:
        """Rotate queries and keys of a joined product. (R, 3 H E) → (R, H, 1, E) each."""
        assert spin is not None
        queries, fresh = rotate_heads(made, spin, self.config.num_attention_heads, pairs=True)
        keys, values = mx.split(fresh.flatten(0, 1), 2)  # views; an index would copy
        return queries, keys, values

    def _layer(self, block: Block) -> StackLayer:
        attention, feed = block.attention, block.feed_forward
        return StackLayer(
            independent(concatenated((attention.wq, attention.wk, attention.wv))),
            self._split,
            independent(attention.wo),
            (block.attention_norm, block.ffn_norm),
            gated(independent(concatenated((feed.w1, feed.w3))), independent(feed.w2)),
        )


def fused(network: CodecLM) -> FusedCodecLM:
    """Return the network's form for single ids. It joins the weights of parallel products; the network's own
    become views, under their names.
    """
    return built_once(network, "fused", lambda: FusedCodecLM(network))
