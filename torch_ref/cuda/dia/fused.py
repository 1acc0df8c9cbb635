"""Dia's decoder for one row of every text, on kernels and joined weights: grid rows in, logits out.

Rounded where the layers round; sums in another order. Up to three rows take nine launches a layer, each bound
by the weights' bytes; more rows take matrix products with the work between them fused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor

from torch_ref.cuda import pointwise
from torch_ref.cuda.attention import Workspace, attend, attend_source, workspace
from torch_ref.cuda.concatenated import concatenated
from torch_ref.cuda.dia.draws import DiaDraws, embed
from torch_ref.cuda.prompt_attention import attend_prompts
from torch_ref.cuda.prompts import lengthened
from torch_ref.cuda.rows import MOST_ROWS, add_linear, gated_linear, normed_linear, usable
from torch_ref.dia.dia import SCALE, Decoder, DecoderLayer, Dia, merge_heads, split_heads
from torch_ref.layers.attention import scaled_dot_product_attention
from torch_ref.layers.norm import RMSNorm

MOST_POSITIONS = 2**31  # more than any table has


@dataclass(frozen=True, eq=False)
class FusedLayer:
    """One layer's weights, those of parallel products joined.

    empty: (D,), the cross-attention of unconditional rows; None without them.
    """

    norms: tuple[RMSNorm, RMSNorm, RMSNorm]
    qkv: Tensor
    out: Tensor
    query: Tensor
    source_out: Tensor
    empty: Tensor | None
    gate_up: Tensor
    down: Tensor


@dataclass(frozen=True, eq=False)
class DecoderMemory:
    """Keys and values of B texts; R is B, or 2 B with the unconditional rows after the conditional ones.

    keys, values: (R, K, rows, E) per layer.
    source_keys, source_values: (L, B, K, text rows, E), of all layers.
    lengths: (B,) int64, of the texts.
    own, source: workspaces of the two attentions.
    """

    keys: list[Tensor]
    values: list[Tensor]
    source_keys: Tensor
    source_values: Tensor
    lengths: Tensor
    own: Workspace
    source: Workspace

    @classmethod
    def empty(cls, network: Dia, texts: int, rows: int, text_rows: int, *, guided: bool) -> DecoderMemory:
        """Allocate zeros for texts of `text_rows` bytes and `rows` grid rows at most."""
        config, weight = network.config.decoder_config, network.logits_dense.weight
        heads, source_heads = config.num_attention_heads, config.cross_num_attention_heads
        own = (1 + guided) * texts, config.num_key_value_heads, rows, config.head_dim
        source = texts, config.cross_num_key_value_heads, text_rows, config.cross_head_dim
        layers = range(config.num_hidden_layers)
        return cls(
            [weight.new_zeros(own) for _ in layers],
            [weight.new_zeros(own) for _ in layers],
            weight.new_zeros(len(layers), *source),
            weight.new_zeros(len(layers), *source),
            torch.zeros(texts, dtype=torch.int64, device=weight.device),
            workspace(own[0], heads, own[1], own[3], weight.device),
            workspace(texts, source_heads, source[1], source[3], weight.device),
        )


def runs(network: Dia) -> bool:
    """Return whether the kernels support this network: see torch_ref.cuda.rows.usable."""
    decoder = network.config.decoder_config
    widths = decoder.head_dim, decoder.cross_head_dim
    return all(usable(network.logits_dense.weight, width) for width in widths)


class FusedDecoder:
    """The decoder's weights, applied to one row of each text.

    empty: (1, 1, source width), the encoding of the empty text; None without guidance.
    """

    def __init__(self, network: Dia, empty: Tensor | None):
        self.network, self.config = network, network.config.decoder_config
        decoder: Decoder = network.model.decoder
        layers = cast(list[DecoderLayer], list(decoder.layers))
        self.constants = None if empty is None else decoder.constants(empty)
        rest = (
            [None] * len(layers)
            if self.constants is None
            else [constant.reshape(-1) for constant in self.constants]
        )
        self.layers = [_layer(layer, empty) for layer, empty in zip(layers, rest, strict=True)]
        self.norm, self.head = decoder.norm, network.logits_dense.weight
        self.table = decoder.embeddings.embed.weight
        self.rotation = decoder.rotary(0, MOST_POSITIONS)
        self.source_rotation = (
            lengthened(decoder.cross_rotary(0, MOST_POSITIONS)) if decoder.cross_rope else None
        )

    def logits(self, rows: DiaDraws, memory: DecoderMemory) -> Tensor:
        """Compute logits for every text's next row. → (R, C·V) in the network's dtype."""
        total = len(memory.keys[0])
        x, positions = self.embed(rows, total)
        return (self._few if total <= MOST_ROWS else self._many)(x, positions, memory)

    def read(self, x: Tensor, spots: Tensor, memory: DecoderMemory) -> tuple[Tensor, Tensor | None]:
        """Run B prompts of T grid rows, x (B·T, D), which is overwritten, and keep their keys and values.

        spots: as of `attend_prompts`; the texts of both kinds of rows must have been read. Returns x, and
        what is still to be added to it.
        """
        places, length, texts = spots[:, 0], len(x) // len(spots), len(memory.lengths)
        heads, shared = self.config.cross_num_attention_heads, self.config.cross_num_key_value_heads
        source, is_free = places % texts, (places >= texts)[:, None, None]
        every = torch.arange(memory.source_keys.shape[3], device=x.device)
        mask = (every < memory.lengths[source][:, None])[:, None, None]
        added: Tensor | None = None
        for index, layer in enumerate(self.layers):
            before, between, after = layer.norms
            y = pointwise.add_norm(x, added, before.weight, before.eps)
            attended = attend_prompts(
                F.linear(y, layer.qkv), spots, memory.keys[index], memory.values[index], scale=SCALE,
                rotation=self.rotation,
            )  # fmt: skip
            y = pointwise.add_norm(x, F.linear(attended, layer.out), between.weight, between.eps)
            query = F.linear(y, layer.query)
            if self.source_rotation is not None:
                pointwise.rotate(query, self.source_rotation, heads, length)
            held = memory.source_keys[index][source], memory.source_values[index][source]
            attended = scaled_dot_product_attention(
                split_heads(query.unflatten(0, (-1, length)), self.config.cross_head_dim), *held, mask,
                scale=SCALE, enable_gqa=heads > shared,
            )  # fmt: skip
            added = F.linear(merge_heads(attended), layer.source_out)
            if layer.empty is not None:
                added = torch.where(is_free, layer.empty, added)
            y = pointwise.add_norm(x, added.flatten(0, 1), after.weight, after.eps)
            added = F.linear(pointwise.gated(F.linear(y, layer.gate_up)), layer.down)
        return x, added

    def embed(self, rows: DiaDraws, total: int) -> tuple[Tensor, Tensor]:
        """Embed the last known row of every text: vectors (total, D) and positions (total,) int64."""
        x = self.head.new_empty(total, self.config.hidden_size)
        positions = torch.empty(total, dtype=torch.int64, device=x.device)
        embed(rows, self.table, x, positions)
        return x, positions

    def compiling(self, memory: DecoderMemory) -> list[Callable[[], object]]:
        """List calls that launch each kernel between embedding and draw once, on arbitrary rows."""
        total, texts = len(memory.keys[0]), len(memory.lengths)
        layer, head = self.layers[0], self.head
        x, more = head.new_zeros(total, self.config.hidden_size), head.new_zeros(total, layer.down.shape[1])
        positions = torch.zeros(total, dtype=torch.int64, device=head.device)
        projected, attended = head.new_zeros(total, len(layer.qkv)), head.new_zeros(total, layer.out.shape[1])
        query = head.new_zeros(texts, len(layer.query))
        before, between, after = layer.norms
        both: list[Callable[[], object]] = [
            lambda: self._attend(projected, positions, memory, 0),
            lambda: self._attend_source(query, positions, memory, 0),
        ]
        if total > MOST_ROWS:
            rest = {"rest": layer.empty, "rest_gain": after.weight, "texts": texts}
            return [
                *both,
                lambda: pointwise.add_norm(x, None, before.weight, before.eps),
                lambda: pointwise.add_norm(x, x, before.weight, before.eps),
                lambda: pointwise.add_norm(x, x, between.weight, between.eps, **rest),
                lambda: pointwise.gated(head.new_zeros(total, len(layer.gate_up))),
            ]
        gate, up = layer.gate_up.chunk(2)
        return [
            *both,
            lambda: normed_linear(x, before.weight, before.eps, layer.qkv),
            lambda: normed_linear(x[:texts], between.weight, between.eps, layer.query),
            lambda: normed_linear(x, self.norm.weight, self.norm.eps, head),
            lambda: add_linear(x, attended, layer.out),
            lambda: add_linear(x, query, layer.source_out, layer.empty),
            lambda: gated_linear(x, after.weight, after.eps, gate, up),
            lambda: add_linear(x, more, layer.down),
        ]

    def _few(self, x: Tensor, positions: Tensor, memory: DecoderMemory) -> Tensor:
        texts = len(memory.lengths)
        for index, layer in enumerate(self.layers):
            before, between, after = layer.norms
            projected = normed_linear(x, before.weight, before.eps, layer.qkv)
            attended = self._attend(projected, positions, memory, index)
            add_linear(x, attended, layer.out)
            query = normed_linear(x[:texts], between.weight, between.eps, layer.query)
            attended = self._attend_source(query, positions, memory, index)
            add_linear(x, attended, layer.source_out, layer.empty)
            gate, up = layer.gate_up.chunk(2)
            inner = gated_linear(x, after.weight, after.eps, gate, up)
            add_linear(x, inner, layer.down)
        return normed_linear(x, self.norm.weight, self.norm.eps, self.head)

    def _many(self, x: Tensor, positions: Tensor, memory: DecoderMemory) -> Tensor:
        texts = len(memory.lengths)
        added: Tensor | None = None
        for index, layer in enumerate(self.layers):
            before, between, after = layer.norms
            y = pointwise.add_norm(x, added, before.weight, before.eps)
            attended = self._attend(F.linear(y, layer.qkv), positions, memory, index)
            added = F.linear(attended, layer.out)
            y = pointwise.add_norm(
                x, added, between.weight, between.eps, rest=layer.empty, rest_gain=after.weight, texts=texts
            )
            query = F.linear(y[:texts], layer.query)
            added = F.linear(self._attend_source(query, positions, memory, index), layer.source_out)
            pointwise.add_norm(x[:texts], added, after.weight, after.eps, out=y[:texts])
            added = F.linear(pointwise.gated(F.linear(y, layer.gate_up)), layer.down)
        return F.linear(pointwise.add_norm(x, added, self.norm.weight, self.norm.eps), self.head)

    def _attend(self, projected: Tensor, positions: Tensor, memory: DecoderMemory, index: int) -> Tensor:
        keys, values = memory.keys[index], memory.values[index]
        return attend(projected, positions, keys, values, memory.own, scale=SCALE, rotation=self.rotation)

    def _attend_source(self, query: Tensor, positions: Tensor, memory: DecoderMemory, index: int) -> Tensor:
        keys, values = memory.source_keys[index], memory.source_values[index]
        return attend_source(
            query, memory.lengths, positions, keys, values, memory.source, scale=SCALE,
            rotation=self.source_rotation,
        )  # fmt: skip


def _layer(layer: DecoderLayer, empty: Tensor | None) -> FusedLayer:
    attention, source, mlp = layer.self_attention, layer.cross_attention, layer.mlp
    return FusedLayer(
        (layer.pre_sa_norm, layer.pre_ca_norm, layer.pre_mlp_norm),
        concatenated((attention.q_proj, attention.k_proj, attention.v_proj)),
        attention.o_proj.weight,
        source.q_proj.weight,
        source.o_proj.weight,
        empty,
        mlp.gate_up_proj.weight,
        mlp.down_proj.weight,
    )
