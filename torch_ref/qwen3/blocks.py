"""Layers that both of Qwen3-TTS's transformers are made of.

Upstream: QwenLM/Qwen3-TTS@022e286, Apache-2.0; parameter names are the published ones.
Differs from upstream: norms and rotations are computed in float32 for any dtype, and rounded once. Positions
are one stream: upstream's three are always equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch import Tensor, nn

from torch_ref.layers.attention import scaled_dot_product_attention
from torch_ref.layers.cache import KeyValueCache
from torch_ref.layers.feed_forward import FeedForward
from torch_ref.layers.norm import RMSNorm, at_least_float32
from torch_ref.layers.rope import Rotation, rotate
from torch_ref.layers.row_cache import RowCache
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

    def forward(self, x: Tensor, rotation: Rotation, cache: Cache) -> Tensor:
        projected = [layer(x) for layer in (self.q_proj, self.k_proj, self.v_proj)]
        q, k, v = (part.unflatten(-1, (-1, self.head_dim)).transpose(1, 2) for part in projected)
        q, k = rotate(self.q_norm(q), rotation), rotate(self.k_norm(k), rotation)
        k, v = cache.extend(k, v)
        causal, mask = cache.rule(x.shape[1])
        y = scaled_dot_product_attention(q, k, v, mask, is_causal=causal, enable_gqa=True)
        return self.o_proj(y.transpose(1, 2).flatten(2))


class TransformerLayer(nn.Module):
    """Pre-norm attention and feed-forward. (B, T, D) → same."""

    def __init__(self, config: Qwen3StackConfig):
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = FeedForward(config.hidden_size, config.intermediate_size)

    def forward(self, x: Tensor, rotation: Rotation, cache: Cache) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), rotation, cache)
        return x + self.mlp(self.post_attention_layernorm(x))


def run(layers: Iterable[nn.Module], x: Tensor, rotation: Rotation, cache: Sequence[Cache]) -> Tensor:
    """Run layers, each with its own cache. (B, T, D) → same."""
    for layer, rows in zip(layers, cache, strict=True):
        x = layer(x, rotation, rows)
    return x


def logits_of(layer: nn.Module, hidden: Tensor) -> Tensor:
    """Compute logits. (..., D) → (..., V) at least float32."""
    return at_least_float32(layer(hidden))
