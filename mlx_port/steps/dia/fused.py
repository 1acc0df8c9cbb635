"""Dia's decoder for one row of every text, with few launches: joined weights, one cache a layer, and
element-wise operations compiled. Rounded where the layers round. In float32 on a CPU a text's numbers do not
depend on the other texts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import mlx.core as mx
import numpy as np

from mlx_port.dia.dia import SCALE, DecoderLayer, Dia
from mlx_port.kernels.attention_support import try_long
from mlx_port.layers.norm import RMSNorm
from mlx_port.layers.row_cache import RowPositions
from mlx_port.runtime.switches import EarlyLaunch
from mlx_port.steps.add_norm import add_norm
from mlx_port.steps.chain import chain
from mlx_port.steps.concatenated import concatenated
from mlx_port.steps.forms import built_once
from mlx_port.steps.row_keys import SharedCache, attend_seen, seen_keys, written
from mlx_port.steps.rows import independent
from mlx_port.steps.spin import Spins, rotate_heads, rotate_queries

Product = Callable[[mx.array], mx.array]
Source = tuple[Sequence[mx.array], Sequence[mx.array]]  # keys and values of each layer


@dataclass(frozen=True, eq=False)
class FusedLayer:
    """One layer's weights, those of parallel products joined.

    empty: (D,), the cross-attention of unconditional rows; None without them.
    """

    norms: tuple[RMSNorm, RMSNorm, RMSNorm]
    qkv: Product
    out: Product
    query: Product
    source_out: Product
    empty: mx.array | None
    gate_up: Product
    down: Product


class FusedDecoder:
    """The decoder's weights, applied to one row of each text.

    empty: (1, 1, source width), the encoding of the empty text; None without guidance.
    """

    def __init__(self, network: Dia, empty: mx.array | None):
        self.network, self.config = network, network.config.decoder_config
        decoder = network.model.decoder
        self.constants = None if empty is None else decoder.constants(empty)
        self.copies = 1 if empty is None else 2  # rows of a text
        rest = [None] * len(decoder.layers) if self.constants is None else [x[0, 0] for x in self.constants]
        self.layers = [_layer(layer, empty) for layer, empty in zip(decoder.layers, rest, strict=True)]
        self.embeddings, self.norm = decoder.embeddings, decoder.norm
        self.head = independent(network.logits_dense)
        self.spins = Spins(decoder.rotary(0, self.config.max_position_embeddings))
        self.source_spins = None
        if decoder.cross_rope:
            self.source_spins = Spins(decoder.cross_rotary(0, self.config.max_position_embeddings))
        offsets = self.config.vocab_size * mx.arange(self.config.num_channels)
        self.offsets = mx.zeros((self.copies, 1, 1), mx.int32) + offsets
        mx.eval(rest, self.offsets)
        layers = range(len(self.layers))
        self.start = chain(self._start)
        self.middles = [chain(partial(self._middle, index)) for index in layers]
        self.ends = [chain(partial(self._end, index)) for index in layers]
        self.launch = EarlyLaunch(len(self.layers))

    def logits(
        self,
        tokens: mx.array,
        at: RowPositions,
        caches: Sequence[SharedCache],
        source: Source,
        lengths: np.ndarray,
    ) -> mx.array:
        """Compute logits for every text's next row. → (R, C·V) in the network's dtype.

        tokens: (B, C), the last known row of each text.
        source: keys and values of the texts, (B, K, S, E) of each layer.
        lengths: (B,), bytes of the texts.
        """
        texts = len(tokens)
        spin, text_keys = self.spins(at.on_host), seen_keys(lengths)
        seen = seen_keys(at.on_host + 1, texts=texts)
        source_spin = () if self.source_spins is None else (self.source_spins(at.on_host[:texts]),)
        x, queries, fresh = self.start(tokens, spin)
        for index, (middle, end) in enumerate(zip(self.middles, self.ends, strict=True)):
            cache, pair = caches[index], (source[0][index], source[1][index])
            cache.both = written(cache.both, fresh, at.on_host)
            attended = attend_seen(queries, cache.keys, cache.values, seen, SCALE)
            x, queries = middle(x, attended, *source_spin)
            attended = attend_seen(queries, *pair, text_keys, SCALE)
            x, queries, fresh = end(x, attended, spin)
            self.launch(1 + index, x)
        return x

    def try_kernels(self) -> None:
        """Run the trials of all kernels that texts use: build a step's graph, but do not run it."""
        config, at, kind = self.config, RowPositions(1), self.embeddings.embed.weight.dtype
        at.on_host = np.zeros(self.copies, np.int32)
        own = mx.zeros((self.copies, config.num_key_value_heads, 1, config.head_dim), kind)
        caches = [SharedCache(own, own, at) for _ in self.layers]
        crossed = [mx.zeros((1, config.cross_num_key_value_heads, 1, config.cross_head_dim), kind)] * len(
            caches
        )
        tokens = mx.zeros((1, config.num_channels), mx.int32)
        self.logits(tokens, at, caches, (crossed, crossed), np.ones(1, np.int32))
        try_long(config.num_attention_heads, config.num_key_value_heads, config.head_dim, kind)
        try_long(
            config.cross_num_attention_heads, config.cross_num_key_value_heads, config.cross_head_dim, kind
        )
        config = self.network.config.encoder_config
        try_long(config.num_attention_heads, config.num_key_value_heads, config.head_dim, kind)

    def _start(self, tokens: mx.array, spin: mx.array) -> tuple[mx.array, mx.array, mx.array]:
        """Embed rows; then as `_end`."""
        embedded = self.embeddings.embed(tokens + self.offsets).sum(axis=2)  # (G, B, D)
        x = embedded.flatten(0, 1)
        return x, *self._heads(0, self.layers[0].norms[0](x), spin)

    def _middle(
        self, index: int, x: mx.array, attended: mx.array, *source_spin: mx.array
    ) -> tuple[mx.array, mx.array]:
        """Add a layer's self-attention. → rows (R, D), and queries of the texts (B, H, 1, E)."""
        layer = self.layers[index]
        x, normed = self._sum(x, layer.out(attended.flatten(1)), layer.norms[1], None)
        query = layer.query(normed[: len(x) // self.copies])
        if source_spin:
            return x, rotate_queries(query, *source_spin)
        return x, query.reshape(len(query), -1, 1, self.config.cross_head_dim)

    def _end(
        self, index: int, x: mx.array, attended: mx.array, spin: mx.array
    ) -> tuple[mx.array, mx.array, mx.array]:
        """Add a layer's cross-attention and feed-forward. → rows, the next layer's queries, keys and values.

        After the last layer: logits, and nothing else of use.
        """
        layer = self.layers[index]
        x, normed = self._sum(x, layer.source_out(attended.flatten(1)), layer.norms[2], layer.empty)
        gate, up = mx.split(layer.gate_up(normed), 2, axis=-1)
        last = index + 1 == len(self.layers)
        norm = self.norm if last else self.layers[index + 1].norms[0]
        x, normed = self._sum(x, layer.down(gate * mx.sigmoid(gate) * up), norm, None)
        if last:
            return self.head(normed), attended, attended
        return x, *self._heads(index + 1, normed, spin)

    def _heads(self, index: int, normed: mx.array, spin: mx.array) -> tuple[mx.array, mx.array]:
        return rotate_heads(
            self.layers[index].qkv(normed), spin, self.config.num_attention_heads, pairs=False
        )

    def _sum(
        self, x: mx.array, added: mx.array, norm: RMSNorm, rest: mx.array | None
    ) -> tuple[mx.array, mx.array]:
        return add_norm(x, added, norm, x.dtype, rest=rest)


def concatenate_weights(network: Dia) -> None:
    """Join the weights of parallel products; the network's own become views, under their names."""
    for layer in network.model.decoder.layers:
        _qkv(layer)


def fused(network: Dia, empty: mx.array | None) -> FusedDecoder:
    """Return the decoder's form for single rows; built again only for other weights."""
    return built_once(network, ("decoder", empty is None), lambda: FusedDecoder(network, empty))


def _qkv(layer: DecoderLayer) -> Product:
    attention = layer.self_attention
    return concatenated((attention.q_proj, attention.k_proj, attention.v_proj))


def _layer(layer: DecoderLayer, empty: mx.array | None) -> FusedLayer:
    attention, source, mlp = layer.self_attention, layer.cross_attention, layer.mlp
    return FusedLayer(
        (layer.pre_sa_norm, layer.pre_ca_norm, layer.pre_mlp_norm),
        independent(_qkv(layer)),
        independent(attention.o_proj),
        independent(source.q_proj),
        independent(source.o_proj),
        empty,
        independent(mlp.gate_up_proj),
        independent(mlp.down_proj),
    )
