"""Dia's reading of a text on kernels and joined weights: its encoder, and keys and values for every layer.

Rounded where the layers round; sums in another order. A text takes nine launches a layer of the encoder and
one a layer of the decoder, where the plain layers take about 600 in all. From the second text of a length on
the encoder is one captured graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor

from torch_ref.cuda import pointwise
from torch_ref.cuda.joined import joined
from torch_ref.cuda.replayed import Replayed
from torch_ref.dia.dia import SCALE, DecoderLayer, Dia, EncoderLayer, merge_heads, split_heads
from torch_ref.layers.attention import scaled_dot_product_attention


@dataclass(frozen=True, eq=False)
class _Layer:
    """A layer of the encoder. before, after: gains of its norms in float32."""

    before: Tensor
    after: Tensor
    qkv: Tensor
    out: Tensor
    gate_up: Tensor
    down: Tensor


class FusedReader:
    """The encoder's weights, and those of cross-attention's keys and values, joined for each layer."""

    def __init__(self, network: Dia):
        config, decoder = network.config, network.model.decoder
        encoder, self.encoder = network.model.encoder, config.encoder_config
        source = config.decoder_config
        self.heads, self.width = source.cross_num_key_value_heads, source.cross_head_dim
        self.layers = [_layer(layer) for layer in cast(list[EncoderLayer], list(encoder.layers))]
        self.sources = [
            joined((layer.cross_attention.k_proj, layer.cross_attention.v_proj))
            for layer in cast(list[DecoderLayer], list(decoder.layers))
        ]
        self.table, self.norm = encoder.embedding.weight, encoder.norm
        self._replayed = Replayed(self._encode, lambda: None, lambda shape: True)
        device = self.table.device
        self._stream = torch.cuda.Stream(device, priority=-1) if device.type == "cuda" else None
        self.rotation = encoder.rotary(0, self.encoder.max_position_embeddings)
        self.source_rotation = (
            decoder.cross_rotary(0, self.encoder.max_position_embeddings) if decoder.cross_rope else None
        )

    def read(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Compute keys and values of a text for every layer. (S,) → (L, K, S, E) each."""
        encoded, length = self._encoded(tokens), len(tokens)
        both = encoded.new_empty(len(self.sources), length, 2 * self.heads * self.width)
        for weight, made in zip(self.sources, both, strict=True):
            torch.mm(encoded, weight.T, out=made)
        if self.source_rotation is not None:
            pointwise.turn(both.flatten(0, 1), self.source_rotation, self.heads, length)
        keys, values = both.unflatten(-1, (2, self.heads, self.width)).permute(2, 0, 3, 1, 4)
        return keys, values

    def _encoded(self, tokens: Tensor) -> Tensor:
        """Encode a text, (S,) → (S, source width), on a stream of its own, where calls can be captured."""
        if self._stream is None:
            return self._replayed(tokens)
        current = torch.cuda.current_stream(tokens.device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            encoded = self._replayed(tokens)
        current.wait_stream(self._stream)
        tokens.record_stream(self._stream)
        encoded.record_stream(current)
        return encoded

    def _encode(self, tokens: Tensor) -> Tensor:
        """Encode a text. (S,) → (S, source width)."""
        config, eps = self.encoder, self.encoder.norm_eps
        heads, shared = config.num_attention_heads, config.num_key_value_heads
        sizes = [count * config.head_dim for count in (heads, shared, shared)]
        x, added = F.embedding(tokens, self.table), None
        for layer in self.layers:
            projected = F.linear(pointwise.add_norm(x, added, layer.before, eps), layer.qkv)
            pointwise.turn(projected, self.rotation, heads + shared, len(tokens))
            parts = projected[None].split(sizes, dim=-1)
            queries, keys, values = (split_heads(one, config.head_dim) for one in parts)
            attended = scaled_dot_product_attention(queries, keys, values, scale=SCALE, enable_gqa=True)
            added = F.linear(merge_heads(attended)[0], layer.out)
            y = pointwise.add_norm(x, added, layer.after, eps)
            added = F.linear(pointwise.gated(F.linear(y, layer.gate_up)), layer.down)
        return pointwise.add_norm(x, added, self.norm.weight, eps)


def _layer(layer: EncoderLayer) -> _Layer:
    attention = layer.self_attention
    return _Layer(
        layer.pre_sa_norm.weight,
        layer.post_sa_norm.weight,
        joined((attention.q_proj, attention.k_proj, attention.v_proj)),
        attention.o_proj.weight,
        layer.mlp.gate_up_proj.weight,
        layer.mlp.down_proj.weight,
    )
