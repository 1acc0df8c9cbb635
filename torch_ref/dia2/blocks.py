"""Blocks that both of Dia2's transformers are made of.

Upstream: nari-labs/dia2@8687268, Apache-2.0.
Differs from upstream: rotations are computed in float32 for any dtype.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torch_ref.layers.attention import scaled_dot_product_attention
from torch_ref.layers.cache import KeyValueCache
from torch_ref.layers.rope import Rotation, rotate
from torch_ref.layers.row_cache import RowCache
from torch_ref.limits.independent import silu
from torch_ref.limits.remedies import at_least_float32
from tts_core.dia2.config import Dia2StackConfig
from tts_core.nn.packed import PackedCache

Cache = KeyValueCache | RowCache | PackedCache
SCALE = 1.0  # attention scores are not divided by sqrt(E): queries and keys are normalized


def linear(x: Tensor) -> Tensor:
    """Return x: no activation."""
    return x


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": silu,
    "gelu": F.gelu,
    "relu": F.relu,
    "linear": linear,
}


def project(layer: nn.Module, x: Tensor) -> Tensor:
    """Apply a linear in its weight's dtype, then return to that of x. (..., D) → (..., D')."""
    weight = layer.weight
    assert isinstance(weight, Tensor)
    return layer(x.to(weight.dtype)).to(x.dtype)


def add(x: Tensor, y: Tensor) -> Tensor:
    """Add in at least float32, rounded once to the dtype of x."""
    return (at_least_float32(x) + at_least_float32(y)).to(x.dtype)


class RMSNorm(nn.Module):
    """x / sqrt(mean(x²) + eps) · weight over the last axis, with the weight in the dtype of x.

    (..., D) → same.
    """

    def __init__(self, width: int, eps: float):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        weight = at_least_float32(self.weight.to(x.dtype))
        return F.rms_norm(at_least_float32(x), weight.shape, weight, self.eps).to(x.dtype)


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

    def forward(self, main: Tensor, second: Tensor) -> Tensor:
        first, other = self.main_proj(self.embedding(main)), self.second_proj(self.embedding(second))
        return first + torch.where((second == self.pad)[..., None], torch.zeros_like(other), other)


class MLP(nn.Module):
    """Gated feed-forward: wo(activation(gate) · activation(up)). (B, T, D) → same."""

    def __init__(self, config: Dia2StackConfig):
        super().__init__()
        self.activations = config.activations
        self.wi = nn.Linear(config.hidden_size, 2 * config.intermediate_size, bias=False)
        self.wo = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = project(self.wi, x).chunk(2, dim=-1)
        first, second = (ACTIVATIONS[name] for name in self.activations)
        return project(self.wo, first(gate) * second(up))


def attend(queries: Tensor, keys: Tensor, values: Tensor, rotation: Rotation | None, cache: Cache) -> Tensor:
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
    return attended.transpose(1, 2).flatten(2)


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """Split heads. (B, T, H·E) → (B, H, T, E)."""
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)
