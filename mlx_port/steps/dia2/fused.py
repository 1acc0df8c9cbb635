"""Dia2's networks for one step of each text, with few launches: joined weights and tables, compiled chains of
element-wise operations, and all codes of a frame in one graph. Rounded where the layers round.

Rows are the conditional ones of all texts and, with guidance, the unconditional ones after them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import numpy as np

from mlx_port.dia2.blocks import ACTIVATIONS, MLP, SCALE, RMSNorm, TextEmbedding, add
from mlx_port.dia2.dia2 import Dia2
from mlx_port.kernels.attention_support import try_long
from mlx_port.layers.row_cache import RowCache
from mlx_port.steps.add_norm import add_norm
from mlx_port.steps.chain import chain
from mlx_port.steps.concatenated import concatenated
from mlx_port.steps.forms import built_once
from mlx_port.steps.fused_stack import FusedStack, StackLayer, trial_cache
from mlx_port.steps.row_keys import attend_row, attend_seen, seen_keys, written
from mlx_port.steps.rows import independent, independent_on_cpu
from mlx_port.steps.spin import Spins
from mlx_port.steps.splitting import Splitting
from tts_core.dia2.config import Dia2StackConfig


class RowFeedForward:
    """Gated feed-forward of rows. (R, D) → same."""

    def __init__(self, mlp: MLP, kind: mx.Dtype):
        self.gate_up, self.down, self.kind = independent(mlp.wi), independent(mlp.wo), kind
        self.first, self.second = (ACTIVATIONS[name] for name in mlp.activations)

    def __call__(self, x: mx.array) -> mx.array:
        gate, up = mx.split(self.gate_up(x).astype(self.kind), 2, axis=-1)
        first, second = self.first(gate.astype(mx.float32)), self.second(up.astype(mx.float32))
        return self.down(first.astype(self.kind) * second.astype(self.kind)).astype(self.kind)


class RowTextEmbedding:
    """Embeddings of both text streams' ids. (R, 2) → (R, D)."""

    def __init__(self, embed: TextEmbedding):
        self.embedding, self.pad = embed.embedding, embed.pad
        self.main, self.second = independent_on_cpu(embed.main_proj), independent_on_cpu(embed.second_proj)

    def __call__(self, ids: mx.array) -> mx.array:
        said = self.embedding(ids)
        other = self.second(said[:, 1])
        return self.main(said[:, 0]) + mx.where(ids[:, 1:] == self.pad, mx.zeros_like(other), other)


class FusedDia2:
    """The weights of both networks, applied to one step of each text."""

    def __init__(self, network: Dia2):
        self.network, config = network, network.config
        transformer, depformer = network.transformer, network.depformer
        self.kind = kind = transformer.compute or transformer.text_embed.embedding.weight.dtype
        self.table = concatenated(transformer.audio_embeds)
        self.offsets = config.audio_vocab_size * mx.arange(config.n_streams)
        self.trunk = FusedStack(
            [
                StackLayer(
                    independent(concatenated((layer.attn.q_proj, layer.attn.k_proj, layer.attn.v_proj))),
                    _splitting(config.transformer, layer.attn, kind),
                    independent(layer.attn.o_proj),
                    (_rounded(layer.pre_norm, kind), _rounded(layer.post_norm, kind)),
                    RowFeedForward(layer.mlp, kind),
                )
                for layer in transformer.layers
            ],
            _rounded(transformer.norm, kind),
            kind,
            is_apart=True,
        )
        self.depth = self._depth()
        self.text = RowTextEmbedding(transformer.text_embed)
        self.depth_text = None if depformer.text_embed is None else RowTextEmbedding(depformer.text_embed)
        self.depth_in = [independent(item) for item in depformer.depformer_in]
        self.depth_heads = [independent(row_logits) for row_logits in depformer.logits]
        self.action_head, self.code_head = (
            independent(transformer.action_head),
            independent(transformer.cb0_head),
        )
        self.spins = Spins(transformer.rotary(0, 2 * config.max_context_steps + 1))
        self.depth_spins = (
            None if depformer.rotary is None else _stages(depformer.rotary(0, config.n_streams - 1))
        )
        self.start = chain(self._start)
        mx.eval(self.offsets, self.depth_spins or [])

    def hidden(
        self,
        tokens: mx.array,
        positions: np.ndarray,
        lengths: np.ndarray,
        caches: Sequence[RowCache],
        *,
        texts: int,
    ) -> mx.array:
        """Run the transformer.

        tokens: (R, 2 + Q).
        positions: (R,), positions.
        lengths: (R,), keys so far; both repeat after the first `texts` rows.
        → (R, D) after the last norm.
        """
        spin, seen = self.spins(positions), seen_keys(lengths + 1, texts=texts)

        def attend(layer: int, queries: mx.array, keys: mx.array, values: mx.array) -> mx.array:
            held = caches[layer]
            held.keys, held.values = written(held.keys, keys, lengths), written(held.values, values, lengths)
            return attend_seen(queries, held.keys, held.values, seen, SCALE)

        return self.trunk.run(self.start(tokens, spin), spin, attend)

    def actions(self, hidden: mx.array) -> mx.array:
        """Compute the action's logits. (R, D) → (R, A) float32."""
        return self.action_head(hidden).astype(mx.float32)

    def codes(self, hidden: mx.array) -> mx.array:
        """Compute the first code's logits. (R, D) → (R, V) float32."""
        return self.code_head(hidden).astype(mx.float32)

    def stages(self, hidden: mx.array) -> list[mx.array]:
        """Project the transformer's output by every set of weights. (R, D) → (R, E) each."""
        return [item(hidden).astype(self.kind) for item in self.depth_in]

    def stage(
        self, stage: int, projected: Sequence[mx.array], read: mx.array, cache: list[list[mx.array]]
    ) -> mx.array:
        """Compute the logits of a stage's code.

        projected: from `stages`.
        read: (R, E), embedded ids.
        cache: [keys, values] of each layer, (R, K, stages, E); written in place.
        → (R, codes) float32.
        """
        depformer = self.network.depformer
        index = depformer.stage_sets[stage]
        spin = None if self.depth_spins is None else self.depth_spins[stage]

        def attend(layer: int, queries: mx.array, *fresh: mx.array) -> mx.array:
            for which, new in enumerate(fresh):
                cache[layer][which][:, :, stage : stage + 1] = new
            keys, values = (item[:, :, : stage + 1] for item in cache[layer])
            return attend_row(queries, keys, values, None, SCALE)

        layers = self.depth[index]
        x, normed = add_norm(projected[index], read, layers.layers[0].norms[0], self.kind)
        hidden = layers.run(layers.begin(x, normed, spin), spin, attend)
        return self.depth_heads[stage](hidden).astype(mx.float32)[:, : depformer.codebook_size]

    def new_stages(self, rows: int) -> list[list[mx.array]]:
        """Create an empty cache of the depformer."""
        stack = self.network.config.depformer
        shape = rows, stack.num_key_value_heads, len(self.network.depformer.stage_sets), stack.head_dim
        return [[mx.zeros(shape, self.kind), mx.zeros(shape, self.kind)] for _ in self.depth[0].layers]

    def try_kernels(self) -> None:
        """Run the trials of all kernels that texts use: build a step's graph, but do not run it."""
        config, zero = self.network.config, np.zeros(1, np.int32)
        stack = config.transformer
        caches = trial_cache(len(self.trunk.layers), stack.num_key_value_heads, stack.head_dim, self.kind)
        hidden = self.hidden(mx.zeros((1, 2 + config.n_streams), mx.int32), zero, zero, caches, texts=1)
        projected, read = self.stages(hidden), mx.zeros((1, config.depformer.hidden_size), self.kind)
        stages = self.new_stages(1)
        for stage in range(len(self.network.depformer.stage_sets)):
            self.stage(stage, projected, read, stages)
        try_long(stack.num_attention_heads, stack.num_key_value_heads, stack.head_dim, self.kind)

    def _start(self, tokens: mx.array, spin: mx.array) -> tuple[mx.array, ...]:
        """Embed rows, and begin the first layer. tokens: (R, 2 + Q)."""
        x = self.text(tokens[:, :2]).astype(self.kind)
        embedded = self.table(tokens[:, 2:] + self.offsets)  # (R, Q, D)
        for stream in range(embedded.shape[1]):
            x = add(x, embedded[:, stream])
        return self.trunk.start(x, spin)

    def _depth(self) -> list[FusedStack]:
        """Build the depformer's layers, once for each set of its weights."""
        depformer, kind = self.network.depformer, self.kind
        sets: list[list[StackLayer]] = [[] for _ in self.network.config.weight_sets]
        for layer in depformer.layers:
            split = _splitting(self.network.config.depformer, layer.self_attention, kind)
            norms = _rounded(layer.pre_norm, kind), _rounded(layer.post_norm, kind)
            feed, attention = RowFeedForward(layer.mlp, kind), layer.self_attention
            for own, joint, out in zip(sets, attention.in_proj, attention.out_proj, strict=True):
                own.append(StackLayer(independent(joint), split, independent(out), norms, feed))
        norm = _rounded(depformer.norm, kind)
        return [FusedStack(layers, norm, kind, is_apart=False) for layers in sets]


def fused(network: Dia2) -> FusedDia2:
    """Return the form of the networks for single steps; built again only for other weights."""
    return built_once(network, ("steps", network.transformer.compute), lambda: FusedDia2(network))


def concatenate_weights(network: Dia2) -> None:
    """Join parallel weights and tables; the network's own become views, under their names."""
    concatenated(network.transformer.audio_embeds)
    for layer in network.transformer.layers:
        concatenated((layer.attn.q_proj, layer.attn.k_proj, layer.attn.v_proj))


def _rounded(norm: RMSNorm, kind: mx.Dtype) -> RMSNorm:
    """Return a norm whose weight has the values that it has in activations' dtype, in float32."""
    made = RMSNorm(len(norm.weight), norm.eps)
    made.weight = norm.weight.astype(kind).astype(mx.float32)
    mx.eval(made.weight)
    return made


def _splitting(stack: Dia2StackConfig, attention: Any, kind: mx.Dtype) -> Splitting:
    norms = attention.q_norm, attention.k_norm
    gains = [_rounded(norm, kind).weight for norm in norms]
    return Splitting(stack, gains, norms[0].eps, kind)


def _stages(rotation: tuple[mx.array, mx.array]) -> list[mx.array]:
    """Tables of each stage's position, (1, 2, E/2), as from Spins."""
    return [*mx.split(Spins(rotation).table, len(rotation[0]))]
