"""Dia2's layers on kernels and joined weights: one row of every text in, the same row after all layers out.

Rounded where the layers round; sums in another order. Up to three rows take five launches a layer, each bound
by the weights' bytes; more rows take matrix products with the work between them fused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from torch_ref.cuda import pointwise
from torch_ref.cuda.attention import Workspace, attend
from torch_ref.cuda.joining import joined
from torch_ref.cuda.rows import MOST_ROWS, add_linear, gated_linear, normed_linear, usable
from torch_ref.dia2.blocks import MLP, SCALE, RMSNorm
from torch_ref.dia2.depformer import DepformerLayer
from torch_ref.dia2.dia2 import Dia2
from torch_ref.dia2.transformer import TransformerLayer
from torch_ref.layers.rope import Rotation
from tts_core.dia2.config import GATED


@dataclass(frozen=True, eq=False)
class Layer:
    """One layer's weights, those of parallel products joined; norms in float32, rounded as the layer does.

    heads: (2, E), the norms of queries and keys.
    """

    before: Tensor
    after: Tensor
    heads: Tensor
    qkv: Tensor
    out: Tensor
    gate_up: Tensor
    down: Tensor


@dataclass(frozen=True, eq=False)
class Memory:
    """Keys and values of R rows, (R, K, capacity, E) per layer, and attention's workspace."""

    keys: list[Tensor]
    values: list[Tensor]
    work: Workspace


def runs(network: Dia2) -> bool:
    """Return whether the kernels support this network: see torch_ref.cuda.rows.usable.

    Its depformer must not read text, which depends on the action.
    """
    config, weight = network.config, network.transformer.cb0_head.weight
    compute = network.transformer.compute
    return (
        all(usable(weight, stack.head_dim) for stack in (config.transformer, config.depformer))
        and all(stack.activations == GATED for stack in (config.transformer, config.depformer))
        and compute in (None, weight.dtype)
        and not config.depformer_has_text
    )


def gain(norm: RMSNorm, dtype: torch.dtype) -> Tensor:
    """Return a norm's weight as the norm applies it to numbers of a dtype, in float32."""
    return norm.weight.detach().to(dtype).float()


class FusedStack:
    """The layers of one transformer. rotation: tables of all positions; None without rotary positions."""

    def __init__(self, layers: Sequence[Layer], eps: float, rotation: Rotation | None):
        self.layers, self.eps, self.rotation = layers, eps, rotation

    def run(
        self, x: Tensor, places: Tensor, positions: Tensor, memory: Memory
    ) -> tuple[Tensor, Tensor | None]:
        """Run a row of each text, x (R, D), which is overwritten.

        places, positions: (R,) or (1,) int64, of the row in the cache and of its angles.
        Returns x, and what is still to be added to it or None.
        """
        return (self._few if len(x) <= MOST_ROWS else self._many)(x, places, positions, memory)

    def norm_linear(self, x: Tensor, added: Tensor | None, gain: Tensor, weight: Tensor) -> Tensor:
        """Apply a linear map to the normed result of `run`. → (R, N)."""
        if len(x) <= MOST_ROWS:
            return normed_linear(x, gain, self.eps, weight)
        return F.linear(pointwise.add_norm(x, added, gain, self.eps), weight)

    def compiling(self, x: Tensor, places: Tensor, memory: Memory) -> list[Callable[[], object]]:
        """List calls that launch each kernel of a layer once, on arbitrary rows. x: (R, D)."""
        layer, eps, rows = self.layers[0], self.eps, len(x)
        projected = x.new_zeros(rows, len(layer.qkv))
        attended, inner = x.new_zeros(rows, layer.out.shape[1]), x.new_zeros(rows, layer.down.shape[1])
        both: list[Callable[[], object]] = [lambda: self._attend(projected, places, places, memory, 0)]
        if rows > MOST_ROWS:
            return [
                *both,
                lambda: pointwise.add_norm(x, None, layer.before, eps),
                lambda: pointwise.add_norm(x, x, layer.before, eps),
                lambda: pointwise.gated(x.new_zeros(rows, len(layer.gate_up))),
            ]
        gate, up = layer.gate_up.chunk(2)
        return [
            *both,
            lambda: normed_linear(x, layer.before, eps, layer.qkv),
            lambda: add_linear(x, attended, layer.out),
            lambda: gated_linear(x, layer.after, eps, gate, up),
            lambda: add_linear(x, inner, layer.down),
        ]

    def _few(self, x: Tensor, places: Tensor, positions: Tensor, memory: Memory) -> tuple[Tensor, None]:
        for index, layer in enumerate(self.layers):
            projected = normed_linear(x, layer.before, self.eps, layer.qkv)
            add_linear(x, self._attend(projected, places, positions, memory, index), layer.out)
            gate, up = layer.gate_up.chunk(2)
            add_linear(x, gated_linear(x, layer.after, self.eps, gate, up), layer.down)
        return x, None

    def _many(
        self, x: Tensor, places: Tensor, positions: Tensor, memory: Memory
    ) -> tuple[Tensor, Tensor | None]:
        added: Tensor | None = None
        for index, layer in enumerate(self.layers):
            projected = F.linear(pointwise.add_norm(x, added, layer.before, self.eps), layer.qkv)
            added = F.linear(self._attend(projected, places, positions, memory, index), layer.out)
            y = pointwise.add_norm(x, added, layer.after, self.eps)
            added = F.linear(pointwise.gated(F.linear(y, layer.gate_up)), layer.down)
        return x, added

    def _attend(
        self, projected: Tensor, places: Tensor, positions: Tensor, memory: Memory, index: int
    ) -> Tensor:
        return attend(
            projected, places, memory.keys[index], memory.values[index], memory.work, scale=SCALE,
            rotation=self.rotation, angles=positions, gains=self.layers[index].heads, eps=self.eps,
        )  # fmt: skip


def transformer_layer(layer: TransformerLayer) -> Layer:
    """Join the weights of one of the transformer's layers."""
    attention = layer.attn
    qkv = joined((attention.q_proj, attention.k_proj, attention.v_proj))
    norms = layer.pre_norm, layer.post_norm, attention.q_norm, attention.k_norm
    return _layer(norms, layer.mlp, qkv, attention.o_proj.weight)


def depformer_layer(layer: DepformerLayer, place: int) -> Layer:
    """Collect the weights of one of the depformer's layers, with one set of projections."""
    attention = layer.self_attention
    qkv, out = attention.in_proj[place].weight, attention.out_proj[place].weight
    assert isinstance(qkv, Tensor)
    assert isinstance(out, Tensor)
    norms = layer.pre_norm, layer.post_norm, attention.q_norm, attention.k_norm
    return _layer(norms, layer.mlp, qkv, out)


def _layer(norms: tuple[RMSNorm, RMSNorm, RMSNorm, RMSNorm], mlp: MLP, qkv: Tensor, out: Tensor) -> Layer:
    before, after, queries, keys = (gain(norm, qkv.dtype) for norm in norms)
    return Layer(before, after, torch.stack((queries, keys)), qkv, out, mlp.wi.weight, mlp.wo.weight)
