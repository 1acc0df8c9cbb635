"""Blocks that both of Dia2's transformers are made of.

Upstream: nari-labs/dia2@8687268, Apache-2.0.
Differs from upstream: rotations are computed in float32 for any dtype.
"""

from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx
from mlx import nn

from mlx_port.layers.attention import scaled_dot_product_attention
from mlx_port.layers.cache import KeyValueCache
from mlx_port.layers.rope import Rotation, rotate
from mlx_port.layers.row_cache import RowCache
from tts_core.dia2.config import Dia2StackConfig
from tts_core.nn.packed import PackedCache

Cache = KeyValueCache | RowCache | PackedCache
SCALE = 1.0  # attention scores are not divided by sqrt(E): queries and keys are normalized


def linear(x: mx.array) -> mx.array:
    """Return x: no activation."""
    return x


ACTIVATIONS: dict[str, Callable[[mx.array], mx.array]] = {
    "silu": nn.silu,
    "gelu": nn.gelu,
    "relu": nn.relu,
    "linear": linear,
}


def project(layer: nn.Module, x: mx.array) -> mx.array:
    """Apply a linear in its weight's dtype, then return to that of x. (..., D) → (..., D')."""
    return layer(x).astype(x.dtype)  # MLX computes in the wider dtype of both


def add(x: mx.array, y: mx.array) -> mx.array:
    """Add in at least float32, rounded once to the dtype of x."""
    return (x.astype(mx.float32) + y.astype(mx.float32)).astype(x.dtype)


class RMSNorm(nn.Module):
    """x / sqrt(mean(x²) + eps) · weight over the last axis, with the weight in the dtype of x.

    (..., D) → same.
    """

    def __init__(self, width: int, eps: float):
        super().__init__()
        self.eps = eps
        self.weight = mx.ones((width,))

    def __call__(self, x: mx.array) -> mx.array:
        weight = self.weight.astype(x.dtype).astype(mx.float32)
        return mx.fast.rms_norm(x.astype(mx.float32), weight, self.eps).astype(x.dtype)


class TextEmbedding(nn.Module):
    """Sum of the two text streams' projected embeddings; the second adds nothing where it is `pad`.

    (R, T) ids each → (R, T, D).
    """

    def __init__(self, ids: int, inner: int, width: int, pad: int):
        super().__init__()
        self.pad = pad
        self.embedding = nn.Embedding(ids, inner)
        self.main_proj = nn.Linear(inner, width, bias=False)
        self.second_proj = nn.Linear(inner, width, bias=False)

    def __call__(self, main: mx.array, second: mx.array) -> mx.array:
        first, other = self.main_proj(self.embedding(main)), self.second_proj(self.embedding(second))
        return first + mx.where((second == self.pad)[..., None], mx.zeros_like(other), other)


class MLP(nn.Module):
    """Gated feed-forward: wo(activation(gate) · activation(up)). (B, T, D) → same."""

    def __init__(self, config: Dia2StackConfig):
        super().__init__()
        self.activations = config.activations
        self.wi = nn.Linear(config.hidden_size, 2 * config.intermediate_size, bias=False)
        self.wo = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def __call__(self, x: mx.array) -> mx.array:
        gate, up = mx.split(project(self.wi, x), 2, axis=-1)
        first, second = (ACTIVATIONS[name] for name in self.activations)
        # MLX's own activations round inside
        gate, up = (part.astype(mx.float32) for part in (gate, up))
        return project(self.wo, first(gate).astype(x.dtype) * second(up).astype(x.dtype))


def attend(
    queries: mx.array, keys: mx.array, values: mx.array, rotation: Rotation | None, cache: Cache
) -> mx.array:
    """Attend from new rows to the cached ones and themselves, each only to itself and earlier rows.

    (B, H, T, E) and (B, K, T, E) twice → (B, T, H·E).  rotation: None without rotary positions.
    """
    if rotation is not None:
        queries, keys = rotate(queries, rotation), rotate(keys, rotation)
    keys, values = cache.extend(keys, values)
    causal, mask = cache.rule(queries.shape[2])
    attended = scaled_dot_product_attention(
        queries, keys, values, mask, is_causal=causal, scale=SCALE, enable_gqa=True
    )
    return mx.flatten(attended.swapaxes(1, 2), 2)


def split_heads(x: mx.array, head_dim: int) -> mx.array:
    """Split heads. (B, T, H·E) → (B, H, T, E)."""
    return mx.unflatten(x, -1, (-1, head_dim)).swapaxes(1, 2)
