"""Dia2's networks for one step of each text, with few launches: joined weights and tables, compiled chains of
element-wise operations, and all codes of a frame in one graph. Rounded where the layers round.

Rows of a text: the conditional one and, with guidance, the unconditional one after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import mlx.core as mx
import numpy as np

from mlx_port.dia2.blocks import ACTIVATIONS, MLP, SCALE, RMSNorm, add
from mlx_port.dia2.dia2 import Dia2
from mlx_port.steps.add_norm import add_norm
from mlx_port.steps.chain import chain
from mlx_port.steps.joining import joined
from mlx_port.steps.kept import kept
from mlx_port.steps.row_keys import attend_row, seen_keys, written
from mlx_port.steps.rows import product
from mlx_port.steps.spin import Spins
from mlx_port.steps.splitting import Splitting
from tts_core.dia2.config import StackConfig

Product = Callable[[mx.array], mx.array]


class FeedForward:
    """Gated feed-forward of rows. (R, D) → same."""

    def __init__(self, mlp: MLP, kind: mx.Dtype):
        self.gate_up, self.down, self.kind = product(mlp.wi), product(mlp.wo), kind
        self.first, self.second = (ACTIVATIONS[name] for name in mlp.activations)

    def __call__(self, x: mx.array) -> mx.array:
        gate, up = mx.split(self.gate_up(x).astype(self.kind), 2, axis=-1)
        first, second = self.first(gate.astype(mx.float32)), self.second(up.astype(mx.float32))
        return self.down(first.astype(self.kind) * second.astype(self.kind)).astype(self.kind)


@dataclass(frozen=True, eq=False)
class Layer:
    """A layer of the transformer."""

    qkv: Product
    split: Splitting
    out: Product
    norms: tuple[RMSNorm, RMSNorm]
    feed: FeedForward


@dataclass(frozen=True, eq=False)
class DepthLayer:
    """A layer of the depformer. qkv, out: by the place of their set of weights."""

    qkv: Sequence[Product]
    split: Splitting
    out: Sequence[Product]
    norms: tuple[RMSNorm, RMSNorm]
    feed: FeedForward


class FusedDia2:
    """The weights of both networks, applied to one step of each text."""

    def __init__(self, network: Dia2):
        self.network, config = network, network.config
        transformer, depformer = network.transformer, network.depformer
        self.kind = kind = transformer.compute or transformer.text_embed.embedding.weight.dtype
        self.table = joined(transformer.audio_embeds)
        self.offsets = config.audio_vocab_size * mx.arange(config.n_streams)
        self.layers = [
            Layer(
                product(joined((layer.attn.q_proj, layer.attn.k_proj, layer.attn.v_proj))),
                _splitting(config.transformer, layer.attn, kind),
                product(layer.attn.o_proj),
                (_rounded(layer.pre_norm, kind), _rounded(layer.post_norm, kind)),
                FeedForward(layer.mlp, kind),
            )
            for layer in transformer.layers
        ]
        self.depth = [
            DepthLayer(
                [product(one) for one in layer.self_attention.in_proj],
                _splitting(config.depformer, layer.self_attention, kind),
                [product(one) for one in layer.self_attention.out_proj],
                (_rounded(layer.pre_norm, kind), _rounded(layer.post_norm, kind)),
                FeedForward(layer.mlp, kind),
            )
            for layer in depformer.layers
        ]
        self.norm, self.depth_norm = _rounded(transformer.norm, kind), _rounded(depformer.norm, kind)
        self.depth_in = [product(one) for one in depformer.depformer_in]
        self.depth_heads = [product(one) for one in depformer.logits]
        self.action_head, self.code_head = product(transformer.action_head), product(transformer.cb0_head)
        self.spins = Spins(transformer.rotary(0, 2 * config.max_context_steps + 1))
        self.depth_spins = (
            None if depformer.rotary is None else _stages(depformer.rotary(0, config.n_streams - 1))
        )
        self.start = chain(self._start)
        self.ends = [chain(partial(self._end, index)) for index in range(len(self.layers))]
        mx.eval(self.offsets, self.depth_spins or [])

    def hidden(
        self, tokens: mx.array, places: np.ndarray, lengths: np.ndarray, cache: list[list[mx.array]]
    ) -> mx.array:
        """Run the transformer. tokens: (R, 2 + Q).  places: (R,), positions.  lengths: (R,), keys so far.

        cache: [keys, values] of each layer, (R, K, rows, E); written in place. → (R, D) after the last norm.
        """
        spin, seen = self.spins(places), seen_keys(lengths + 1)
        x, queries, *fresh = self.start(tokens, spin)
        for held, end in zip(cache, self.ends, strict=True):
            held[:] = (written(each, new, lengths) for each, new in zip(held, fresh, strict=True))
            keys, values = (each[:, :, : seen.most] for each in held)
            x, queries, *fresh = end(x, attend_row(queries, keys, values, seen.mask, SCALE), spin)
        return x

    def actions(self, hidden: mx.array) -> mx.array:
        """Compute the action's logits. (R, D) → (R, A) float32."""
        return self.action_head(hidden).astype(mx.float32)

    def codes(self, hidden: mx.array) -> mx.array:
        """Compute the first code's logits. (R, D) → (R, V) float32."""
        return self.code_head(hidden).astype(mx.float32)

    def stages(self, hidden: mx.array) -> list[mx.array]:
        """Project the transformer's output by every set of weights. (R, D) → (R, E) each."""
        return [one(hidden).astype(self.kind) for one in self.depth_in]

    def stage(
        self, stage: int, projected: Sequence[mx.array], read: mx.array, cache: list[list[mx.array]]
    ) -> mx.array:
        """Compute the logits of a stage's code. projected: from `stages`.  read: (R, E), embedded ids.

        cache: [keys, values] of each layer, (R, K, stages, E); written in place. → (R, codes) float32.
        """
        depformer = self.network.depformer
        place = depformer.stage_sets[stage]
        spin = None if self.depth_spins is None else self.depth_spins[stage]
        x, normed = add_norm(projected[place], read, self.depth[0].norms[0], self.kind)
        following = [*(layer.norms[0] for layer in self.depth[1:]), self.depth_norm]
        for layer, held, norm in zip(self.depth, cache, following, strict=True):
            queries, *fresh = layer.split(layer.qkv[place](normed), spin)
            for which, new in enumerate(fresh):
                held[which][:, :, stage : stage + 1] = new
            keys, values = (each[:, :, : stage + 1] for each in held)
            attended = attend_row(queries, keys, values, None, SCALE)
            x, normed = self._half(x, layer.out[place](attended.flatten(1)), layer.norms[1])
            x, normed = self._half(x, layer.feed(normed), norm)
        return self.depth_heads[stage](normed).astype(mx.float32)[:, : depformer.codebook_size]

    def new_stages(self, rows: int) -> list[list[mx.array]]:
        """Create an empty cache of the depformer."""
        stack = self.network.config.depformer
        shape = rows, stack.num_key_value_heads, len(self.network.depformer.stage_sets), stack.head_dim
        return [[mx.zeros(shape, self.kind), mx.zeros(shape, self.kind)] for _ in self.depth]

    def _start(self, tokens: mx.array, spin: mx.array) -> tuple[mx.array, ...]:
        """Embed rows; then as `_end`. tokens: (R, 2 + Q)."""
        text, pad = self.network.transformer.text_embed, self.network.config.text_pad_id
        said = text.embedding(tokens[:, :2])
        other = text.second_proj(said[:, 1])
        other = mx.where(tokens[:, 1:2] == pad, mx.zeros_like(other), other)
        x = (text.main_proj(said[:, 0]) + other).astype(self.kind)
        heard = self.table(tokens[:, 2:] + self.offsets)  # (R, Q, D)
        for stream in range(heard.shape[1]):
            x = add(x, heard[:, stream])
        first = self.layers[0]
        return x, *first.split(first.qkv(first.norms[0](x)), spin)

    def _end(self, index: int, x: mx.array, attended: mx.array, spin: mx.array) -> tuple[mx.array, ...]:
        """Add a layer's attention and feed-forward. → rows (R, D), the next layer's queries, keys, values.

        After the last layer: its norm, and nothing else of use.
        """
        layer = self.layers[index]
        x, normed = self._half(x, layer.out(attended.flatten(1)), layer.norms[1])
        last = index + 1 == len(self.layers)
        norm = self.norm if last else self.layers[index + 1].norms[0]
        x, normed = self._half(x, layer.feed(normed), norm)
        if last:
            return normed, attended, attended, attended
        following = self.layers[index + 1]
        return x, *following.split(following.qkv(normed), spin)

    def _half(self, x: mx.array, added: mx.array, norm: RMSNorm) -> tuple[mx.array, mx.array]:
        return add_norm(x, added.astype(self.kind), norm, self.kind)


def fused(network: Dia2) -> FusedDia2:
    """Return the form of the networks for single steps; built again only for other weights."""
    return kept(network, ("steps", network.transformer.compute), lambda: FusedDia2(network))


def join(network: Dia2) -> None:
    """Join parallel weights and tables; the network's own become views, under their names."""
    joined(network.transformer.audio_embeds)
    for layer in network.transformer.layers:
        joined((layer.attn.q_proj, layer.attn.k_proj, layer.attn.v_proj))


def _rounded(norm: RMSNorm, kind: mx.Dtype) -> RMSNorm:
    """Return a norm whose weight has the values that it has in activations' dtype, in float32."""
    made = RMSNorm(len(norm.weight), norm.eps)
    made.weight = norm.weight.astype(kind).astype(mx.float32)
    mx.eval(made.weight)
    return made


def _splitting(stack: StackConfig, attention: Any, kind: mx.Dtype) -> Splitting:
    norms = attention.q_norm, attention.k_norm
    gains = [_rounded(each, kind).weight for each in norms]
    return Splitting(stack, gains, norms[0].eps, kind)


def _stages(rotation: tuple[mx.array, mx.array]) -> list[mx.array]:
    """Tables of each stage's position, (1, 2, E/2), as from Spins."""
    return [*mx.split(Spins(rotation).table, len(rotation[0]))]
