"""MetaVoice's first stage for one row of every text, with few launches: joined weights and compiled parts.

Rounded where the layers round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import mlx.core as mx
from mlx import nn

from mlx_port.layers.row_cache import RowCache
from mlx_port.metavoice.first_stage import Block, FirstStage
from mlx_port.steps.chain import chain
from mlx_port.steps.concatenated import concatenated
from mlx_port.steps.forms import built_once
from mlx_port.steps.fused_stack import FusedStack, StackLayer, attending, gated, trial_cache
from mlx_port.steps.rows import independent, independent_on_cpu
from mlx_port.steps.splitting import Heads


class FusedFirstStage:
    """The network's weights, applied to one id of each row."""

    def __init__(self, network: FirstStage):
        self.network, self.config = network, network.config
        self.kind = network.transformer.wpe.weight.dtype
        layers = [self._layer(block) for block in network.transformer.h]
        self.stack = FusedStack(layers, network.transformer.ln_f, self.kind, is_apart=True)
        self.head = _head(network)
        self.scale = self.config.head_dim**-0.5
        self.start = chain(self._start)

    def next_logits(self, tokens: mx.array, speakers: mx.array, cache: Sequence[RowCache]) -> mx.array:
        """Compute logits for the id after each of `tokens`. (R, 1), (R, 1, D) → (R, V) float32."""
        start, weight = cache[0].length, self.network.transformer.wpe.weight
        positions = weight[start : start + 1] if isinstance(start, int) else weight[start].squeeze(1)
        begun = self.start(tokens, speakers, positions)
        return self.head(self.stack.run(begun, None, attending(cache, self.scale)))

    def try_kernels(self) -> None:
        """Run the trials of all kernels that texts use: build a step's graph, but do not run it."""
        heads, width = self.config.num_attention_heads, self.config.head_dim
        cache = trial_cache(len(self.stack.layers), heads, width, self.kind)
        speakers = mx.zeros((1, 1, self.config.hidden_size), self.kind)
        self.next_logits(mx.zeros((1, 1), mx.int32), speakers, cache)

    def _start(self, tokens: mx.array, speakers: mx.array, positions: mx.array) -> tuple[mx.array, ...]:
        """Embed ids, and begin the first layer."""
        x = self.network.transformer.wtes[0](tokens[:, 0]) + positions + speakers[:, 0]
        return self.stack.start(x.astype(mx.float32) if x.dtype == mx.float16 else x, None)

    def _split(self, made: mx.array, spin: mx.array | None) -> Heads:
        """Divide a joined product. (R, 3 H E) → (R, H, 1, E) each."""
        parts = made.reshape(len(made), 3, self.config.num_attention_heads, 1, -1)
        queries, keys, values = (part.squeeze(1) for part in mx.split(parts, 3, axis=1))
        return queries, keys, values

    def _layer(self, block: Block) -> StackLayer:
        gates = block.mlp.swiglu
        return StackLayer(
            independent(block.attn.c_attn),
            self._split,
            independent(block.attn.c_proj),
            (block.ln_1, block.ln_2),
            gated(independent(concatenated((gates.w1, gates.w3))), independent(block.mlp.c_proj)),
        )


def fused(network: FirstStage) -> FusedFirstStage:
    """Return the network's form for single ids. It joins the weights of parallel products; the network's own
    become views, under their names.
    """
    return built_once(network, "fused", lambda: FusedFirstStage(network))


def _head(network: FirstStage) -> Callable[[mx.array], mx.array]:
    """Return the network's head: products with the token embedding."""
    whole = nn.Linear(1, 1, bias=False)
    whole.weight = network.transformer.wtes[0].weight
    exact = independent_on_cpu(whole)
    return network.head if exact is whole else exact
