"""Dia's reading of a text on kernels and joined weights: its encoder, and keys and values for every layer.

Rounded where the layers round; sums in another order. A pass takes nine launches a layer of the encoder and
two a layer of the decoder, where the plain layers take about 600 a text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor

from torch_ref.cuda import pointwise
from torch_ref.cuda.concatenated import concatenated
from torch_ref.cuda.dia.fused import DecoderMemory
from torch_ref.cuda.prompt_attention import store_prompts
from torch_ref.cuda.prompts import lengthened
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
        self.layers = [_layer(layer) for layer in cast(list[EncoderLayer], list(encoder.layers))]
        self.sources = [
            concatenated((layer.cross_attention.k_proj, layer.cross_attention.v_proj))
            for layer in cast(list[DecoderLayer], list(decoder.layers))
        ]
        self.table, self.norm = encoder.embedding.weight, encoder.norm
        self.rotation = lengthened(encoder.rotary(0, self.encoder.max_position_embeddings))
        self.source_rotation = (
            decoder.cross_rotary(0, self.encoder.max_position_embeddings) if decoder.cross_rope else None
        )

    def read(self, x: Tensor, spots: Tensor, memory: DecoderMemory) -> tuple[Tensor, None]:
        """Run B texts of T rows, x (B·T, D), which is overwritten, and keep keys and values for every layer.

        spots: as of `attend_prompts`. Returns the encoded texts.
        """
        encoded = self._encode(x, spots)
        for weight, keys, values in zip(self.sources, memory.source_keys, memory.source_values, strict=True):
            store_prompts(F.linear(encoded, weight), spots, keys, values, rotation=self.source_rotation)
        return encoded, None

    def _encode(self, x: Tensor, spots: Tensor) -> Tensor:
        """Encode texts, of which each row sees all of its own. (B·T, D) → same."""
        config, eps, length = self.encoder, self.encoder.norm_eps, len(x) // len(spots)
        heads, shared = config.num_attention_heads, config.num_key_value_heads
        sizes = [count * config.head_dim for count in (heads, shared, shared)]
        seen = torch.arange(length, device=x.device) < spots[:, 1:].clamp(min=1)
        mask, added = seen[:, None, None], None
        for layer in self.layers:
            projected = F.linear(pointwise.add_norm(x, added, layer.before, eps), layer.qkv)
            pointwise.rotate(projected, self.rotation, heads + shared, length)
            parts = projected.unflatten(0, (-1, length)).split(sizes, dim=-1)
            queries, keys, values = (split_heads(part, config.head_dim) for part in parts)
            attended = scaled_dot_product_attention(
                queries, keys, values, mask, scale=SCALE, enable_gqa=heads > shared
            )
            added = F.linear(merge_heads(attended).flatten(0, 1), layer.out)
            y = pointwise.add_norm(x, added, layer.after, eps)
            added = F.linear(pointwise.gated(F.linear(y, layer.gate_up)), layer.down)
        return pointwise.add_norm(x, added, self.norm.weight, eps)


def _layer(layer: EncoderLayer) -> _Layer:
    attention = layer.self_attention
    return _Layer(
        layer.pre_sa_norm.weight,
        layer.post_sa_norm.weight,
        concatenated((attention.q_proj, attention.k_proj, attention.v_proj)),
        attention.o_proj.weight,
        layer.mlp.gate_up_proj.weight,
        layer.mlp.down_proj.weight,
    )
