"""The layers of one of Qwen3-TTS's transformers for a row of each text, with few launches: joined weights and
compiled chains of element-wise operations. Rounded where the layers round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import cast

import mlx.core as mx
from mlx import nn

from mlx_port.layers.norm import RMSNorm
from mlx_port.qwen3.blocks import TransformerLayer
from mlx_port.steps.add_norm import add_norm
from mlx_port.steps.chain import chain
from mlx_port.steps.joining import joined
from mlx_port.steps.rows import independent
from mlx_port.steps.splitting import Splitting
from tts_core.qwen3.config import StackConfig

Product = Callable[[mx.array], mx.array]
Attend = Callable[[int, mx.array, mx.array, mx.array], mx.array]  # layer, queries, keys, values → as queries


@dataclass(frozen=True, eq=False)
class Layer:
    """A layer: its products, and the norms before attention and feed-forward."""

    qkv: Product
    split: Splitting
    out: Product
    norms: tuple[RMSNorm, RMSNorm]
    gate_up: Product
    down: Product


class FusedStack:
    """The layers of a transformer and its last norm.

    is_apart: each layer's work is compiled by itself; False inside of a function that is compiled.
    """

    def __init__(
        self,
        layers: Iterable[nn.Module],
        config: StackConfig,
        norm: RMSNorm,
        kind: mx.Dtype,
        *,
        is_apart: bool,
    ):
        self.norm, self.kind, self.scale = norm, kind, config.head_dim**-0.5
        self.layers = [_layer(each, config, kind) for each in cast(Iterable[TransformerLayer], layers)]
        form = chain if is_apart else (lambda function: function)
        self.start = form(self._start)
        self.ends = [form(partial(self._end, index)) for index in range(len(self.layers))]

    def run(self, x: mx.array, spin: mx.array, attend: Attend) -> mx.array:
        """Run rows, (R, D) → same, after the last norm. spin: from Spins.

        attend: takes a layer's queries (R, H, 1, E), and keys and values to be kept (R, K, 1, E).
        """
        x, queries, *fresh = self.start(x, spin)
        for index, end in enumerate(self.ends):
            x, queries, *fresh = end(x, attend(index, queries, *fresh), spin)
        return x

    def _start(self, x: mx.array, spin: mx.array) -> tuple[mx.array, ...]:
        first = self.layers[0]
        return x, *first.split(first.qkv(first.norms[0](x)), spin)

    def _end(self, index: int, x: mx.array, attended: mx.array, spin: mx.array) -> tuple[mx.array, ...]:
        """Add a layer's attention and feed-forward. → rows (R, D), the next layer's queries, keys, values.

        After the last layer: its norm, and nothing else of use.
        """
        layer, last = self.layers[index], index + 1 == len(self.layers)
        x, normed = add_norm(x, layer.out(attended.flatten(1)), layer.norms[1], self.kind)
        gate, up = mx.split(layer.gate_up(normed), 2, axis=-1)
        norm = self.norm if last else self.layers[index + 1].norms[0]
        x, normed = add_norm(x, layer.down(nn.silu(gate) * up), norm, self.kind)
        if last:
            return normed, attended, attended, attended
        following = self.layers[index + 1]
        return x, *following.split(following.qkv(normed), spin)


def join(layer: TransformerLayer) -> None:
    """Join a layer's parallel weights; its own become views, under their names."""
    attention, mlp = layer.self_attn, layer.mlp
    joined((attention.q_proj, attention.k_proj, attention.v_proj))
    joined((mlp.gate_proj, mlp.up_proj))


def _layer(layer: TransformerLayer, config: StackConfig, kind: mx.Dtype) -> Layer:
    attention, mlp = layer.self_attn, layer.mlp
    gains = attention.q_norm.weight, attention.k_norm.weight
    return Layer(
        independent(joined((attention.q_proj, attention.k_proj, attention.v_proj))),
        Splitting(config, gains, config.rms_norm_eps, kind),
        independent(attention.o_proj),
        (layer.input_layernorm, layer.post_attention_layernorm),
        independent(joined((mlp.gate_proj, mlp.up_proj))),
        independent(mlp.down_proj),
    )
