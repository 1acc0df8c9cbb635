"""Dia's decoder for one row of every text, with few launches: joined weights, one cache a layer, and
element-wise operations compiled. Rounded where the layers round.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import numpy as np

from mlx_port.dia.dia import SCALE, DecoderLayer, Dia
from mlx_port.layers.add_norm import add_norm
from mlx_port.layers.attention import attend_row
from mlx_port.layers.chain import chain
from mlx_port.layers.joining import joined
from mlx_port.layers.norm import RMSNorm
from mlx_port.layers.spin import Spins, turn, turn_keys

Product = Callable[[mx.array], mx.array]


@dataclass(frozen=True, eq=False)
class Layer:
    """One layer's weights, those of parallel products joined.

    nothing: (D,), the cross-attention of unconditional rows; None without them.
    """

    norms: tuple[RMSNorm, RMSNorm, RMSNorm]
    qkv: Product
    out: Product
    query: Product
    source_out: Product
    nothing: mx.array | None
    gate_up: Product
    down: Product


@dataclass(eq=False)
class Memory:
    """Keys and values of B texts; R is B, or 2 B with the unconditional rows after the conditional ones.

    own: (2, R, K, rows, E) per layer, keys and values.  source_keys, source_values: (B, K, text rows, E) per
    layer.  lengths: of the texts.
    """

    own: list[mx.array]
    source_keys: list[mx.array]
    source_values: list[mx.array]
    lengths: np.ndarray

    @classmethod
    def empty(cls, network: Dia, texts: int, rows: int, text_rows: int, *, guided: bool) -> Memory:
        """Allocate zeros for texts of `text_rows` bytes and `rows` grid rows at most."""
        config, kind = network.config.decoder_config, network.model.decoder.embeddings.embed.weight.dtype
        own = 2, (1 + guided) * texts, config.num_key_value_heads, rows, config.head_dim
        source = texts, config.cross_num_key_value_heads, text_rows, config.cross_head_dim
        layers = range(config.num_hidden_layers)
        made = [[mx.zeros(shape, kind) for _ in layers] for shape in (own, source, source)]
        mx.async_eval(made)
        return cls(*made, lengths=np.ones(texts, np.int32))


@dataclass(frozen=True, eq=False)
class Seen:
    """Keys that rows see. most: of any row.  mask: (R, 1, 1, most), True at keys to see; None if all are."""

    most: int
    mask: mx.array | None


class FusedDecoder:
    """The decoder's weights, applied to one row of each text.

    nothing: (1, 1, source width), the encoding of the empty text; None without guidance.
    """

    def __init__(self, network: Dia, nothing: mx.array | None):
        self.network, self.config = network, network.config.decoder_config
        decoder = network.model.decoder
        self.constants = None if nothing is None else decoder.constants(nothing)
        self.copies = 1 if nothing is None else 2  # rows of a text
        rest = [None] * len(decoder.layers) if self.constants is None else [x[0, 0] for x in self.constants]
        self.layers = [_layer(layer, one) for layer, one in zip(decoder.layers, rest, strict=True)]
        self.embeddings, self.norm = decoder.embeddings, decoder.norm
        self.spins = Spins(*decoder.rotary(0, self.config.max_position_embeddings))
        self.source_spins = None
        if decoder.cross_rope:
            self.source_spins = Spins(*decoder.cross_rotary(0, self.config.max_position_embeddings))
        channels, heads = self.config.num_channels, self.config.num_key_value_heads
        self.offsets = mx.zeros((self.copies, 1, 1), mx.int32) + self.config.vocab_size * mx.arange(channels)
        self.are_keys = (mx.arange(2 * heads) < heads)[:, None, None]
        mx.async_eval(self.constants or [], self.offsets, self.are_keys)

    def logits(self, tokens: mx.array, places: np.ndarray, memory: Memory) -> mx.array:
        """Compute logits for every text's next row. → (R, C·V) in the network's dtype.

        tokens: (B, C), the last known row of each text.  places: (B,), their positions; `memory` takes them.
        """
        both = np.tile(places, self.copies)
        x = self.embeddings.embed(_placed(tokens, self.offsets)).sum(axis=2).reshape(len(both), -1)
        spin = self.spins(both)
        source_spin = None if self.source_spins is None else self.source_spins(places)
        seen, heard = _seen(both + 1), _seen(memory.lengths)
        normed = self.layers[0].norms[0](x)
        for index, layer in enumerate(self.layers):
            _, between, after = layer.norms
            attended = self._attend(layer.qkv(normed), spin, seen, both, memory, index)
            x, normed = add_norm(x, layer.out(attended), between)
            query = layer.query(normed[: len(places)])
            attended = self._attend_source(query, source_spin, heard, memory, index)
            x, normed = add_norm(x, layer.source_out(attended), after, rest=layer.nothing)
            following = self.layers[index + 1].norms[0] if index + 1 < len(self.layers) else self.norm
            gate, up = mx.split(layer.gate_up(normed), 2, axis=-1)
            x, normed = add_norm(x, layer.down(_gated(gate, up)), following)
        return self.network.logits_dense(normed)

    def _attend(
        self,
        projected: mx.array,
        spin: mx.array,
        seen: Seen,
        places: np.ndarray,
        memory: Memory,
        index: int,
    ) -> mx.array:
        """Write rows into the cache and attend to all that are known. (R, (H + 2 K) E) → (R, H E)."""
        width, count = self.config.head_dim, self.config.num_attention_heads
        heads = projected.reshape(len(projected), -1, 2, width // 2)
        queries = turn(heads[:, :count], spin).reshape(len(projected), count, 1, width)
        fresh = turn_keys(heads[:, count:], spin, self.are_keys)
        fresh = fresh.reshape(len(projected), 2, -1, 1, width).swapaxes(0, 1)
        cache = memory.own[index]
        if (places == places[0]).all():
            place = int(places[0])
            cache[:, :, :, place : place + 1] = fresh
        else:
            cache = mx.put_along_axis(cache, mx.array(places)[None, :, None, None, None], fresh, axis=3)
            memory.own[index] = cache
        keys, values = cache[0, :, :, : seen.most], cache[1, :, :, : seen.most]
        return attend_row(queries, keys, values, seen.mask, SCALE).reshape(len(projected), -1)

    def _attend_source(
        self, query: mx.array, spin: mx.array | None, heard: Seen, memory: Memory, index: int
    ) -> mx.array:
        """Attend to the texts. (B, H E) → same."""
        width, count = self.config.cross_head_dim, self.config.cross_num_attention_heads
        queries = query.reshape(len(query), count, 2, width // 2)
        queries = queries if spin is None else turn(queries, spin)
        keys = memory.source_keys[index][:, :, : heard.most]
        values = memory.source_values[index][:, :, : heard.most]
        queries = queries.reshape(len(query), count, 1, width)
        return attend_row(queries, keys, values, heard.mask, SCALE).reshape(len(query), -1)


def _seen(counts: np.ndarray) -> Seen:
    """Let each row see its first `counts` keys. (R,)."""
    most = int(counts.max())
    if (counts == most).all():
        return Seen(most, None)
    seen: Any = np.arange(most) < counts[:, None]
    return Seen(most, mx.array(seen)[:, None, None])


@chain
def _placed(tokens: mx.array, offsets: mx.array) -> mx.array:
    """Compute rows of the embedding. (B, C), (G, 1, C) → (G, B, C)."""
    return tokens + offsets


@chain
def _gated(gate: mx.array, up: mx.array) -> mx.array:
    return gate * mx.sigmoid(gate) * up


def join(network: Dia) -> None:
    """Join the weights of parallel products; the network's own become views, under their names."""
    for layer in network.model.decoder.layers:
        _qkv(layer)


def _qkv(layer: DecoderLayer) -> Product:
    attention = layer.self_attention
    return joined((attention.q_proj, attention.k_proj, attention.v_proj))


def _layer(layer: DecoderLayer, nothing: mx.array | None) -> Layer:
    attention, source, mlp = layer.self_attention, layer.cross_attention, layer.mlp
    return Layer(
        (layer.pre_sa_norm, layer.pre_ca_norm, layer.pre_mlp_norm),
        _qkv(layer),
        attention.o_proj,
        source.q_proj,
        source.o_proj,
        nothing,
        mlp.gate_up_proj,
        mlp.down_proj,
    )
