"""Transformer layers and embeddings of both of MARS5's networks.

Names are the published ones of Camb-ai/MARS5-TTS@84697c8 (AGPL-3.0); written from a description, none of its
code was used. Gated feed-forward: Shazeer, "GLU variants improve transformer", arXiv:2002.05202.
Differs from upstream: sines are computed in float64 and rounded once. Between layers everything is float32,
even if the products are not.
"""

from __future__ import annotations

import mlx.core as mx
import numpy as np
from mlx import nn

from mlx_port.layers.attention import scaled_dot_product_attention
from mlx_port.layers.norm import LayerNorm
from tts_core.nn.positions import position_table


class SwiGLU(nn.Module):
    """silu(W x) · (V x): W is the gate. (B, S, D) → (B, S, inner)."""

    def __init__(self, width: int, inner: int):
        super().__init__()
        self.W = nn.Linear(width, inner, bias=False)
        self.V = nn.Linear(width, inner, bias=False)

    def __call__(self, x: mx.array) -> mx.array:
        return nn.silu(self.W(x)) * self.V(x)


class MultiheadAttention(nn.Module):
    """Attention with packed projections. (B, S, D) → same."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.in_proj = nn.Linear(width, 3 * width)
        self.out_proj = nn.Linear(width, width)

    def __call__(self, x: mx.array, source: mx.array | None = None, mask: mx.array | None = None) -> mx.array:
        """source: attended rows, if not x; if it has more batch rows than x, they share x's single one.

        mask: (B, 1, 1, keys), True at keys to see; None sees all.
        """
        x = x.astype(self.in_proj.bias.dtype)
        if source is None:
            queries, keys, values = mx.split(self.in_proj(x), 3, axis=-1)
        else:
            width = x.shape[-1]
            queries = _some_rows(self.in_proj, x, slice(width))
            if len(queries) != len(source):  # copies: cuDNN does not take broadcast queries
                queries = mx.concatenate([queries] * len(source))
            memory = source.astype(x.dtype)
            keys, values = mx.split(_some_rows(self.in_proj, memory, slice(width, None)), 2, axis=-1)
        queries, keys, values = (split_heads(part, self.heads) for part in (queries, keys, values))
        return self.out_proj(merge_heads(scaled_dot_product_attention(queries, keys, values, mask)))


class EncoderLayer(nn.Module):
    """Pre-norm self-attention and feed-forward. (B, S, D) → same, float32."""

    def __init__(self, width: int, heads: int, inner: int, eps: float):
        super().__init__()
        self.self_attn = MultiheadAttention(width, heads)
        self.linear2 = nn.Linear(inner, width)
        self.norm1 = LayerNorm(width, eps)
        self.norm2 = LayerNorm(width, eps)
        self.activation = SwiGLU(width, inner)

    def __call__(self, x: mx.array, mask: mx.array | None = None) -> mx.array:
        x = x + self.self_attn(self.norm1(x), mask=mask)
        return x + self.linear2(self.activation(self.norm2(x).astype(self.linear2.bias.dtype)))


class Encoder(nn.Module):
    """Layers with attention to the whole sequence, and a last norm. (B, S, D) → same, float32."""

    def __init__(self, width: int, heads: int, inner: int, layers: int, eps: float):
        super().__init__()
        self.layers = [EncoderLayer(width, heads, inner, eps) for _ in range(layers)]
        self.norm = LayerNorm(width, eps)

    def __call__(self, x: mx.array, mask: mx.array | None = None) -> mx.array:
        """mask: (B, 1, 1, S), True at positions to see; None sees all."""
        for layer in self.layers:
            x = layer(x, mask)
        return self.norm(x)


class ChunkedEmbedding(nn.Module):
    """One table per codebook, each for an equal share of the width. (B, S, Q) → (B, S, D)."""

    def __init__(self, n_codebooks: int, rows: int, width: int):
        super().__init__()
        self.embs = [nn.Embedding(rows, width // n_codebooks) for _ in range(n_codebooks)]

    def __call__(self, codes: mx.array) -> mx.array:
        return mx.concatenate([table(codes[..., q]) for q, table in enumerate(self.embs)], axis=-1)


class SinePositions(nn.Module):
    """Sinusoidal positions from 0, scaled by one learned number. length → (length, D), float32."""

    def __init__(self, width: int):
        super().__init__()
        self.width = width
        self.alpha = mx.ones((1,))

    def __call__(self, length: int) -> mx.array:
        alpha = self.alpha.astype(mx.float32)
        return alpha * mx.array(position_table(length, self.width).astype(np.float32))


def speaker_vector(
    encoder: Encoder, identity: mx.array, codes: mx.array, positions: mx.array, mask: mx.array | None
) -> mx.array:
    """Encode a reference's embedded frames and return the output of the identity row before them.

    identity: (1, D).
    codes: (B, P, D).
    positions: (P + 1, D).
    mask: (B, 1, 1, P + 1) or None.
    → (B, D) float32.
    """
    return encoder(speaker_rows(identity, codes, positions), mask)[:, 0]


def speaker_rows(identity: mx.array, codes: mx.array, positions: mx.array) -> mx.array:
    """Concatenate the identity row and a reference's embedded frames. → (B, P + 1, D), float32."""
    first = mx.broadcast_to(identity, (codes.shape[0], 1, identity.shape[-1]))
    rows = mx.concatenate([first, codes], axis=1)
    return rows.astype(mx.float32) + positions


def _some_rows(linear: nn.Linear | nn.QuantizedLinear, x: mx.array, rows: slice) -> mx.array:
    """Apply some rows of a linear layer: part of a packed projection. (B, S, D) → (B, S, rows)."""
    weight, bias = linear.weight[rows], linear.bias[rows]
    if isinstance(linear, nn.Linear):
        return mx.addmm(bias, x, weight.T)
    biases = linear.get("biases")  # per group; not in every mode
    product = mx.quantized_matmul(
        x,
        weight,
        scales=linear.scales[rows],
        biases=None if biases is None else biases[rows],
        group_size=linear.group_size,
        bits=linear.bits,
        mode=linear.mode,
    )
    return product + bias


def split_heads(x: mx.array, heads: int) -> mx.array:
    """Split heads. (B, S, H·E) → (B, H, S, E)."""
    return mx.unflatten(x, -1, (heads, -1)).transpose(0, 2, 1, 3)


def merge_heads(x: mx.array) -> mx.array:
    """Merge heads. (B, H, S, E) → (B, S, H·E)."""
    return x.transpose(0, 2, 1, 3).flatten(2)
