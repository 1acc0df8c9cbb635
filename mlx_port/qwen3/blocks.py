"""Layers that both of Qwen3-TTS's transformers are made of.

Upstream: QwenLM/Qwen3-TTS@022e286, Apache-2.0; parameter names are the published ones.
Differs from upstream: norms and rotations are computed in float32 for any dtype, and rounded once. Positions
are one stream: upstream's three are always equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import mlx.core as mx
from mlx import nn

from mlx_port.layers.attention import scaled_dot_product_attention
from mlx_port.layers.cache import KeyValueCache
from mlx_port.layers.feed_forward import FeedForward
from mlx_port.layers.norm import RMSNorm
from mlx_port.layers.rope import Rotation, rotate
from mlx_port.layers.row_cache import RowCache
from tts_core.nn.packed import PackedCache
from tts_core.qwen3.config import Qwen3StackConfig

Cache = KeyValueCache | RowCache | PackedCache


class Attention(nn.Module):
    """Grouped-query attention with normalized, rotated queries and keys. (B, T, D) → same."""

    def __init__(self, config: Qwen3StackConfig):
        super().__init__()
        width, self.head_dim = config.hidden_size, config.head_dim
        rows = config.num_attention_heads * config.head_dim
        key_rows = config.num_key_value_heads * config.head_dim
        self.q_proj = nn.Linear(width, rows, bias=False)
        self.k_proj = nn.Linear(width, key_rows, bias=False)
        self.v_proj = nn.Linear(width, key_rows, bias=False)
        self.o_proj = nn.Linear(rows, width, bias=False)
        self.q_norm = RMSNorm(config.head_dim, config.rms_norm_eps)
        self.k_norm = RMSNorm(config.head_dim, config.rms_norm_eps)

    def __call__(self, x: mx.array, rotation: Rotation, cache: Cache) -> mx.array:
        projected = [layer(x) for layer in (self.q_proj, self.k_proj, self.v_proj)]
        q, k, v = (mx.unflatten(part, -1, (-1, self.head_dim)).swapaxes(1, 2) for part in projected)
        q, k = rotate(self.q_norm(q), rotation), rotate(self.k_norm(k), rotation)
        k, v = cache.extend(k, v)
        causal, mask = cache.rule(x.shape[1])
        y = scaled_dot_product_attention(q, k, v, mask, is_causal=causal, enable_gqa=True)
        return self.o_proj(mx.flatten(y.swapaxes(1, 2), 2))


class TransformerLayer(nn.Module):
    """Pre-norm attention and feed-forward. (B, T, D) → same."""

    def __init__(self, config: Qwen3StackConfig):
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = FeedForward(config.hidden_size, config.intermediate_size)

    def __call__(self, x: mx.array, rotation: Rotation, cache: Cache) -> mx.array:
        x = x + self.self_attn(self.input_layernorm(x), rotation, cache)
        return x + self.mlp(self.post_attention_layernorm(x))


def run(layers: Iterable[nn.Module], x: mx.array, rotation: Rotation, cache: Sequence[Cache]) -> mx.array:
    """Run layers, each with its own cache. (B, T, D) → same."""
    for layer, rows in zip(layers, cache, strict=True):
        x = layer(x, rotation, rows)
    return x


def logits_of(layer: nn.Module, hidden: mx.array) -> mx.array:
    """Compute logits. (..., D) → (..., V) float32."""
    return layer(hidden).astype(mx.float32)
