"""Transformer layers and embeddings of both of MARS5's networks.

Names are the published ones of Camb-ai/MARS5-TTS@84697c8 (AGPL-3.0); written from a description, none of its
code was used. Gated feed-forward: Shazeer, "GLU variants improve transformer", arXiv:2002.05202.
Differs from upstream: sines are computed in float64 and rounded once. Between layers everything is float32,
even if the products are not.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torch_ref.layers.attention import scaled_dot_product_attention
from torch_ref.layers.norm import LayerNorm
from torch_ref.limits.independent import silu
from torch_ref.limits.remedies import at_least_float32
from tts_core.nn.positions import position_table


class SwiGLU(nn.Module):
    """silu(W x) · (V x): W is the gate. (B, S, D) → (B, S, inner)."""

    def __init__(self, width: int, inner: int):
        super().__init__()
        self.W = nn.Linear(width, inner, bias=False)
        self.V = nn.Linear(width, inner, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        # differs from mlx_port: on MPS equal half-precision products of three axes without bias may differ
        rows = x.flatten(0, -2)
        return (silu(self.W(rows)) * self.V(rows)).unflatten(0, x.shape[:-1])


class MultiheadAttention(nn.Module):
    """Attention with packed projections. (B, S, D) → same."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.in_proj = nn.Linear(width, 3 * width)
        self.out_proj = nn.Linear(width, width)

    def forward(self, x: Tensor, source: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        """source: attended rows, if not x; if it has more batch rows than x, they share x's single one.

        mask: (B, 1, 1, keys), True at keys to see; None sees all.
        """
        weight, bias = self.in_proj.weight, self.in_proj.bias
        x = x.to(bias.dtype)
        if source is None:
            queries, keys, values = self.in_proj(x).chunk(3, dim=-1)
        else:
            width = x.shape[-1]
            queries = F.linear(x, weight[:width], bias[:width]).expand(source.shape[0], -1, -1)
            keys, values = F.linear(source.to(bias.dtype), weight[width:], bias[width:]).chunk(2, dim=-1)
        queries, keys, values = (split_heads(part, self.heads) for part in (queries, keys, values))
        return self.out_proj(merge_heads(scaled_dot_product_attention(queries, keys, values, mask)))


class EncoderLayer(nn.Module):
    """Pre-norm self-attention and feed-forward. (B, S, D) → same, float32 or wider."""

    def __init__(self, width: int, heads: int, inner: int, eps: float):
        super().__init__()
        self.self_attn = MultiheadAttention(width, heads)
        self.linear2 = nn.Linear(inner, width)
        self.norm1 = LayerNorm(width, eps)
        self.norm2 = LayerNorm(width, eps)
        self.activation = SwiGLU(width, inner)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        x = x + self.self_attn(self.norm1(x), mask=mask)
        return x + self.linear2(self.activation(self.norm2(x).to(self.linear2.weight.dtype)))


class Encoder(nn.Module):
    """Layers with attention to the whole sequence, and a last norm. (B, S, D) → same, float32 or wider."""

    def __init__(self, width: int, heads: int, inner: int, layers: int, eps: float):
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(width, heads, inner, eps) for _ in range(layers))
        self.norm = LayerNorm(width, eps)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """mask: (B, 1, 1, S), True at positions to see; None sees all."""
        for layer in self.layers:
            x = layer(x, mask)
        return self.norm(x)


class ChunkedEmbedding(nn.Module):
    """One table per codebook, each for an equal share of the width. (B, S, Q) → (B, S, D)."""

    def __init__(self, n_codebooks: int, rows: int, width: int):
        super().__init__()
        self.embs = nn.ModuleList(nn.Embedding(rows, width // n_codebooks) for _ in range(n_codebooks))

    def forward(self, codes: Tensor) -> Tensor:
        return torch.cat([table(codes[..., q]) for q, table in enumerate(self.embs)], dim=-1)


class SinePositions(nn.Module):
    """Sinusoidal positions from 0, scaled by one learned number. length → (length, D), float32 or wider."""

    def __init__(self, width: int):
        super().__init__()
        self.width = width
        self.alpha = nn.Parameter(torch.ones(1))

    def forward(self, length: int) -> Tensor:
        alpha = at_least_float32(self.alpha)
        table = position_table(length, self.width)
        return alpha * torch.as_tensor(table, dtype=alpha.dtype, device=alpha.device)


def speaker_vector(
    encoder: Encoder, identity: Tensor, codes: Tensor, positions: Tensor, mask: Tensor | None
) -> Tensor:
    """Encode a reference's embedded frames and return the output of the identity row before them.

    identity: (1, D).
    codes: (B, P, D).
    positions: (P + 1, D).
    mask: (B, 1, 1, P + 1) or None.
    → (B, D), float32 or wider.
    """
    return encoder(speaker_rows(identity, codes, positions), mask)[:, 0]


def speaker_rows(identity: Tensor, codes: Tensor, positions: Tensor) -> Tensor:
    """Concatenate the identity row and a reference's embedded frames. → (B, P + 1, D), float32 or wider."""
    rows = torch.cat((identity.expand(codes.shape[0], 1, -1), codes), dim=1)
    return at_least_float32(rows) + positions


def split_heads(x: Tensor, heads: int) -> Tensor:
    """Split heads. (B, S, H·E) → (B, H, S, E)."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """Merge heads. (B, H, S, E) → (B, S, H·E)."""
    return x.transpose(1, 2).flatten(2)
