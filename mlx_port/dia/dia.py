"""Dia: a byte-level text encoder and a decoder of delayed codec frames.

Upstream: nari-labs/dia layers.py@876125e (0626) and @2811af1 (v0.1), Apache-2.0; parameter names are those of
transformers' DiaForConditionalGeneration.
Differs from upstream: texts are encoded without padding; the unconditional row, whose encoding is one
repeated vector, is encoded as one token, and its cross-attention, a softmax over one key, is a constant;
rotary tables are computed in float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import mlx.core as mx
from mlx import nn

from mlx_port.layers.attention import scaled_dot_product_attention
from mlx_port.layers.cache import KeyValueCache
from mlx_port.layers.norm import RMSNorm
from mlx_port.layers.rope import RotaryPositions, Rotation, rotate
from mlx_port.layers.row_cache import RowCache
from tts_core.dia.config import DiaConfig, DiaDecoderConfig, DiaEncoderConfig
from tts_core.nn.packed import PackedCache, PackedMask

Cache = KeyValueCache | RowCache | PackedCache
SCALE = 1.0  # attention scores are not divided by sqrt(E): the weights were trained that way


class DiaSource(NamedTuple):
    """Inputs of cross-attention: one entry per layer, computed once per batch of texts.

    keys, values: (B, H, S, E).
    mask: (B, 1, 1, S), True at text, or None if all texts are equally long; of packed rows their parts.
    unconditional: (1, 1, D) per layer, the cross-attention of every row after the first B; None without such
    rows.
    """

    keys: list[mx.array]
    values: list[mx.array]
    mask: mx.array | PackedMask | None
    unconditional: list[mx.array] | None


class MLP(nn.Module):
    """Gated feed-forward: down(silu(gate) · up). (B, T, D) → same."""

    def __init__(self, width: int, inner: int):
        super().__init__()
        self.gate_up_proj = nn.Linear(width, 2 * inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)

    def __call__(self, x: mx.array) -> mx.array:
        gate, up = mx.split(self.gate_up_proj(x), 2, axis=-1)
        return self.down_proj(nn.silu(gate) * up)


class SelfAttention(nn.Module):
    """Grouped-query attention with rotary positions. (B, T, D) → same."""

    def __init__(self, width: int, heads: int, kv_heads: int, head_dim: int):
        super().__init__()
        self.head_dim = head_dim
        self.q_proj = nn.Linear(width, heads * head_dim, bias=False)
        self.k_proj = nn.Linear(width, kv_heads * head_dim, bias=False)
        self.v_proj = nn.Linear(width, kv_heads * head_dim, bias=False)
        self.o_proj = nn.Linear(heads * head_dim, width, bias=False)

    def __call__(self, x: mx.array, rotation: Rotation, cache: Cache | None = None) -> mx.array:
        """With a cache, rows follow the cached ones, and each attends only to itself and earlier rows."""
        queries = rotate(split_heads(self.q_proj(x), self.head_dim), rotation)
        keys = rotate(split_heads(self.k_proj(x), self.head_dim), rotation)
        values = split_heads(self.v_proj(x), self.head_dim)
        causal, mask = False, None
        if cache is not None:
            keys, values = cache.extend(keys, values)
            causal, mask = cache.rule(queries.shape[2])
        attended = scaled_dot_product_attention(
            queries, keys, values, mask, is_causal=causal, scale=SCALE, enable_gqa=True
        )
        return self.o_proj(merge_heads(attended))


class CrossAttention(nn.Module):
    """Attention of decoder rows to encoded text. (B, T, D) → same."""

    def __init__(self, width: int, source_width: int, heads: int, kv_heads: int, head_dim: int):
        super().__init__()
        self.head_dim = head_dim
        self.q_proj = nn.Linear(width, heads * head_dim, bias=False)
        self.k_proj = nn.Linear(source_width, kv_heads * head_dim, bias=False)
        self.v_proj = nn.Linear(source_width, kv_heads * head_dim, bias=False)
        self.o_proj = nn.Linear(heads * head_dim, width, bias=False)

    def project(self, encoded: mx.array, rotation: Rotation | None) -> tuple[mx.array, mx.array]:
        """Compute keys and values of encoded text. (B, S, source width) → (B, K, S, E) each."""
        keys = split_heads(self.k_proj(encoded), self.head_dim)
        values = split_heads(self.v_proj(encoded), self.head_dim)
        return keys if rotation is None else rotate(keys, rotation), values

    def __call__(
        self,
        x: mx.array,
        keys: mx.array,
        values: mx.array,
        mask: mx.array | PackedMask | None,
        rotation: Rotation | None,
    ) -> mx.array:
        queries = split_heads(self.q_proj(x), self.head_dim)
        queries = queries if rotation is None else rotate(queries, rotation)
        attended = scaled_dot_product_attention(queries, keys, values, mask, scale=SCALE, enable_gqa=True)
        return self.o_proj(merge_heads(attended))


class EncoderLayer(nn.Module):
    """Pre-norm self-attention and feed-forward. (B, S, D) → same."""

    def __init__(self, config: DiaEncoderConfig):
        super().__init__()
        self.pre_sa_norm = RMSNorm(config.hidden_size, config.norm_eps)
        self.self_attention = SelfAttention(
            config.hidden_size, config.num_attention_heads, config.num_key_value_heads, config.head_dim
        )
        self.post_sa_norm = RMSNorm(config.hidden_size, config.norm_eps)
        self.mlp = MLP(config.hidden_size, config.intermediate_size)

    def __call__(self, x: mx.array, rotation: Rotation, cache: PackedCache | None = None) -> mx.array:
        x = x + self.self_attention(self.pre_sa_norm(x), rotation, cache)
        return x + self.mlp(self.post_sa_norm(x))


class Encoder(nn.Module):
    """Text encoder, for byte ids without padding. (B, S) → (B, S, D)."""

    def __init__(self, config: DiaEncoderConfig):
        super().__init__()
        self.embedding = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = [EncoderLayer(config) for _ in range(config.num_hidden_layers)]
        self.norm = RMSNorm(config.hidden_size, config.norm_eps)
        self.rotary = RotaryPositions(config.max_position_embeddings, config.head_dim, config.rope_theta)

    def __call__(self, ids: mx.array, cache: PackedCache | None = None) -> mx.array:
        """cache: of packed texts, one for all layers."""
        x = self.embedding(ids)
        rotation = self.rotary(0 if cache is None else cache.length, ids.shape[1])
        for layer in self.layers:
            x = layer(x, rotation, cache)
        return self.norm(x)


class MultiChannelEmbedding(nn.Module):
    """Sum of one embedding per channel; token t of channel c is row c·V + t.

    (B, T, C) → (B, T, D).
    """

    def __init__(self, channels: int, vocab_size: int, width: int):
        super().__init__()
        self.channels, self.vocab_size = channels, vocab_size
        self.embed = nn.Embedding(channels * vocab_size, width)

    def __call__(self, tokens: mx.array) -> mx.array:
        rows = tokens + self.vocab_size * mx.arange(self.channels)
        return self.embed(rows).sum(axis=2)


class DecoderLayer(nn.Module):
    """Pre-norm causal self-attention, cross-attention and feed-forward. (R, T, D) → same."""

    def __init__(self, config: DiaDecoderConfig):
        super().__init__()
        self.pre_sa_norm = RMSNorm(config.hidden_size, config.norm_eps)
        self.self_attention = SelfAttention(
            config.hidden_size, config.num_attention_heads, config.num_key_value_heads, config.head_dim
        )
        self.pre_ca_norm = RMSNorm(config.hidden_size, config.norm_eps)
        self.cross_attention = CrossAttention(
            config.hidden_size,
            config.cross_hidden_size,
            config.cross_num_attention_heads,
            config.cross_num_key_value_heads,
            config.cross_head_dim,
        )
        self.pre_mlp_norm = RMSNorm(config.hidden_size, config.norm_eps)
        self.mlp = MLP(config.hidden_size, config.intermediate_size)

    def __call__(
        self,
        x: mx.array,
        rotation: Rotation,
        cross_rotation: Rotation | None,
        cache: Cache,
        source: DiaSource,
        index: int,
    ) -> mx.array:
        """index: this layer's index in `source`. Rows after the source's B are unconditional."""
        x = x + self.self_attention(self.pre_sa_norm(x), rotation, cache)
        texts = source.keys[index].shape[0]
        attended = self.cross_attention(
            self.pre_ca_norm(x[:texts]), source.keys[index], source.values[index], source.mask, cross_rotation
        )
        if source.unconditional is not None:
            shape = (x.shape[0] - texts, *x.shape[1:])
            constant = mx.broadcast_to(source.unconditional[index], shape)
            attended = mx.concatenate([attended, constant])
        x = x + attended
        return x + self.mlp(self.pre_mlp_norm(x))


class Decoder(nn.Module):
    """Decoder of grid rows. (R, T, C) → (R, T, D)."""

    def __init__(self, config: DiaDecoderConfig, text_positions: int, *, cross_rope: bool):
        super().__init__()
        self.cross_rope = cross_rope
        self.embeddings = MultiChannelEmbedding(config.num_channels, config.vocab_size, config.hidden_size)
        self.layers = [DecoderLayer(config) for _ in range(config.num_hidden_layers)]
        self.norm = RMSNorm(config.hidden_size, config.norm_eps)
        positions = config.max_position_embeddings
        self.rotary = RotaryPositions(positions, config.head_dim, config.rope_theta)
        self.cross_rotary = RotaryPositions(
            max(positions, text_positions), config.cross_head_dim, config.rope_theta
        )

    def source(
        self,
        encoded: mx.array,
        mask: mx.array | None,
        unconditional: mx.array | None = None,
        at: int | mx.array = 0,
    ) -> DiaSource:
        """Project encoded texts once for all later rows.

        encoded: (B, S, source width).
        mask: (B, 1, 1, S) or None.
        unconditional: (1, 1, source width), the encoding of one zero token, or None without unconditional
        rows.
        at: position of the first row, or of each one, (S,).
        """
        rotation = self.cross_rotary(at, encoded.shape[1]) if self.cross_rope else None
        pairs = [layer.cross_attention.project(encoded, rotation) for layer in self.layers]
        constants = None if unconditional is None else self.constants(unconditional)
        return DiaSource([keys for keys, _ in pairs], [values for _, values in pairs], mask, constants)

    def constants(self, encoded: mx.array) -> list[mx.array]:
        """Compute each layer's cross-attention to a single key, whose softmax is 1 for any query.

        (1, 1, source width) → (1, 1, D) per layer.
        """
        found = []
        for layer in self.layers:
            keys, values = layer.cross_attention.project(encoded, None)
            query = mx.zeros((1, 1, layer.pre_ca_norm.weight.shape[0]), dtype=encoded.dtype)
            found.append(layer.cross_attention(query, keys, values, None, None))
        return found

    def __call__(self, tokens: mx.array, cache: Sequence[Cache], source: DiaSource) -> mx.array:
        start = cache[0].length
        rotation = self.rotary(start, tokens.shape[1])
        cross_rotation = self.cross_rotary(start, tokens.shape[1]) if self.cross_rope else None
        x = self.embeddings(tokens)
        for index, (layer, rows) in enumerate(zip(self.layers, cache, strict=True)):
            x = layer(x, rotation, cross_rotation, rows, source, index)
        return self.norm(x)


class DiaModel(nn.Module):
    """Encoder and decoder under the prefix of the published names."""

    def __init__(self, config: DiaConfig):
        super().__init__()
        self.encoder = Encoder(config.encoder_config)
        self.decoder = Decoder(
            config.decoder_config, config.encoder_config.max_position_embeddings, cross_rope=config.cross_rope
        )


class Dia(nn.Module):
    """The whole network: text ids and grid rows in, logits per channel out."""

    def __init__(self, config: DiaConfig):
        super().__init__()
        self.config = config
        self.model = DiaModel(config)
        decoder = config.decoder_config
        self.logits_dense = nn.Linear(
            decoder.hidden_size, decoder.num_channels * decoder.vocab_size, bias=False
        )

    def read(self, texts: Sequence[mx.array], unconditional: mx.array | None = None) -> DiaSource:
        """Encode texts one at a time, so that each is independent of the others' length. (S,) int each.

        unconditional: from `encode_empty`; None without unconditional rows.
        """
        encoded = [self.model.encoder(ids[None])[0] for ids in texts]
        longest = max(len(rows) for rows in encoded)
        padded = mx.stack([mx.pad(rows, [(0, longest - len(rows)), (0, 0)]) for rows in encoded])
        mask = None
        if any(len(rows) < longest for rows in encoded):
            lengths = mx.array([len(rows) for rows in encoded])
            mask = (mx.arange(longest) < lengths[:, None])[:, None, None]
        return self.model.decoder.source(padded, mask, unconditional)

    def read_packed(self, ids: mx.array, cache: PackedCache) -> DiaSource:
        """Encode packed texts, each by itself. (1, ΣS) int → keys and values (1, H, ΣS, E)."""
        return self.model.decoder.source(self.model.encoder(ids, cache), None, at=cache.length)

    def encode_empty(self) -> mx.array:
        """Encode the unconditional text: all zero ids have this same vector. → (1, 1, source width)."""
        return self.model.encoder(mx.zeros((1, 1), dtype=mx.int32))

    def __call__(self, tokens: mx.array, cache: Sequence[Cache], source: DiaSource) -> mx.array:
        """Compute logits for the row after each of `tokens`. (R, T, C) → (R, T, C, V) float32."""
        return self.head(self.model.decoder(tokens, cache, source))

    def next_logits(self, tokens: mx.array, cache: Sequence[Cache], source: DiaSource) -> mx.array:
        """Compute logits only for the row after the last of `tokens`. (R, T, C) → (R, C, V) float32."""
        return self.head(self.model.decoder(tokens, cache, source)[:, -1:])[:, 0]

    def head(self, hidden: mx.array) -> mx.array:
        """Compute logits of decoder rows. (R, T, D) → (R, T, C, V) float32, cast after the product."""
        decoder = self.config.decoder_config
        logits = mx.unflatten(self.logits_dense(hidden), -1, (decoder.num_channels, decoder.vocab_size))
        return logits.astype(mx.float32)

    def new_cache(self) -> list[KeyValueCache]:
        """Create an empty cache for every decoder layer."""
        return [KeyValueCache() for _ in self.model.decoder.layers]


def split_heads(x: mx.array, head_dim: int) -> mx.array:
    """Split heads. (B, T, H·E) → (B, H, T, E)."""
    return mx.unflatten(x, -1, (-1, head_dim)).transpose(0, 2, 1, 3)


def merge_heads(x: mx.array) -> mx.array:
    """Merge heads. (B, H, T, E) → (B, T, H·E)."""
    return x.transpose(0, 2, 1, 3).flatten(2)
