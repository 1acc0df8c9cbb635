"""MARS5's autoregressive network: a voice and ids of text and speech in, logits of the next id out.

Upstream: Camb-ai/MARS5-TTS@84697c8 (AGPL-3.0); written from a description, none of its code was used.
Parameter names are the published ones. Sliding window: Beltagy, Peters and Cohan, "Longformer",
arXiv:2004.05150.
Differs from upstream: the speaker vector is computed once, not in every step; angles and sines are computed
in float64 and rounded once; rotations are real products; norms and logits are float32 in every dtype.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torch_ref.layers.attention import scaled_dot_product_attention
from torch_ref.layers.cache import RingCache
from torch_ref.layers.norm import RMSNorm
from torch_ref.layers.rope import RotaryPositions, Rotation, rotate_pairs
from torch_ref.layers.row_cache import RowCache
from torch_ref.limits.independent import silu
from torch_ref.limits.remedies import at_least_float32
from torch_ref.mars5.encoder import (
    ChunkedEmbedding,
    Encoder,
    SinePositions,
    merge_heads,
    speaker_vector,
    split_heads,
)
from tts_core.mars5.config import CodecLMConfig
from tts_core.nn.packed import PackedCache

Cache = RingCache | RowCache | PackedCache


class FeedForward(nn.Module):
    """w2(silu(w1 x) · w3 x). (B, T, D) → same."""

    def __init__(self, width: int, inner: int):
        super().__init__()
        self.w1 = nn.Linear(width, inner, bias=False)
        self.w2 = nn.Linear(inner, width, bias=False)
        self.w3 = nn.Linear(width, inner, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.w2(silu(self.w1(x)) * self.w3(x))


class Attention(nn.Module):
    """Causal self-attention with rotary positions in a sliding window. (B, T, D) → same."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.wq = nn.Linear(width, width, bias=False)
        self.wk = nn.Linear(width, width, bias=False)
        self.wv = nn.Linear(width, width, bias=False)
        self.wo = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor, rotation: Rotation, cache: Cache) -> Tensor:
        """Attend from new rows, which follow the cached ones."""
        both = torch.cat((self.wq(x), self.wk(x)), dim=-1)  # rotated together: half the launches
        queries, keys = rotate_pairs(split_heads(both, 2 * self.heads), rotation).chunk(2, dim=1)
        keys, values = cache.extend(keys, split_heads(self.wv(x), self.heads))
        causal, mask = cache.rule(x.shape[1])
        return self.wo(
            merge_heads(scaled_dot_product_attention(queries, keys, values, mask, is_causal=causal))
        )


class Block(nn.Module):
    """Pre-norm attention and feed-forward. (B, T, D) → same."""

    def __init__(self, config: CodecLMConfig):
        super().__init__()
        self.attention = Attention(config.hidden_size, config.num_attention_heads)
        self.feed_forward = FeedForward(config.hidden_size, config.intermediate_size)
        self.attention_norm = RMSNorm(config.hidden_size, config.norm_eps)
        self.ffn_norm = RMSNorm(config.hidden_size, config.norm_eps)

    def forward(self, x: Tensor, rotation: Rotation, cache: Cache) -> Tensor:
        x = x + self.attention(self.attention_norm(x), rotation, cache)
        return x + self.feed_forward(self.ffn_norm(x))


class Transformer(nn.Module):
    """Blocks, a last norm and the output. (B, T, D) → (B, T, D) of `forward`; `output` gives logits."""

    def __init__(self, config: CodecLMConfig):
        super().__init__()
        self.layers = nn.ModuleList(Block(config) for _ in range(config.num_hidden_layers))
        self.norm = RMSNorm(config.hidden_size, config.norm_eps)
        self.output = nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    def forward(self, x: Tensor, rotation: Rotation, cache: Sequence[Cache]) -> Tensor:
        for layer, rows in zip(self.layers, cache, strict=True):
            x = layer(x, rotation, rows)
        return self.norm(x)


class CodecLM(nn.Module):
    """The whole network. The speaker vector has position 0; the ids follow it."""

    def __init__(self, config: CodecLMConfig):
        super().__init__()
        self.config = config
        width = config.hidden_size
        self.embed = nn.Embedding(config.vocab_size, width)
        self.ref_chunked_emb = ChunkedEmbedding(config.n_codebooks, config.codebook_rows, width)
        self.spk_identity_emb = nn.Embedding(1, width)
        self.pos_embedding = SinePositions(width)
        self.spk_encoder = Encoder(
            width,
            config.speaker_heads,
            config.speaker_intermediate_size,
            config.speaker_layers,
            config.speaker_norm_eps,
        )
        self.ar = Transformer(config)

    def speaker(self, codes: Tensor) -> Tensor:
        """Encode the reference as one vector. (B, P, Q) → (B, D).

        Frames are dropped from the first one whose first code is the padding row.
        """
        padding = codes[..., 0] == self.config.codebook_rows - 1
        gone = F.pad(padding.int(), (1, 0))  # the identity row is never padding
        there = gone.cumsum(dim=1) == 0
        positions = self.pos_embedding(codes.shape[1] + 1)
        return speaker_vector(
            self.spk_encoder,
            self.spk_identity_emb.weight,
            self.ref_chunked_emb(codes),
            positions,
            there[:, None, None],
        )

    def rows(self, speaker: Tensor, ids: Tensor) -> Tensor:
        """Build the first input rows: the speaker vector and the prompt. (B, D), (B, N) → (B, N + 1, D)."""
        words = self.embed(ids)
        return torch.cat((speaker[:, None].to(words.dtype), words), dim=1)

    def forward(self, rows: Tensor, rotation: Rotation, cache: Sequence[Cache]) -> Tensor:
        """Compute logits after each row. (B, T, D) → (B, T, V), at least float32."""
        return self.head(self.ar(rows, rotation, cache))

    def next_logits(self, rows: Tensor, rotation: Rotation, cache: Sequence[Cache]) -> Tensor:
        """Compute logits only after the last row. (B, T, D) → (B, V), at least float32."""
        return self.head(self.ar(rows, rotation, cache)[:, -1])

    def head(self, hidden: Tensor) -> Tensor:
        """Compute logits of the blocks' output. (..., D) → (..., V), cast after the product."""
        return at_least_float32(self.ar.output(hidden))

    def positions(self, length: int) -> RotaryPositions:
        """Build rotary tables of positions 0 .. length-1, on the network's device."""
        tables = RotaryPositions(length, self.config.head_dim, self.config.rope_theta)
        return tables.to(self.embed.weight.device)

    def new_cache(self, capacity: int) -> list[RingCache]:
        """Create an empty cache for every layer. capacity: most positions of the request."""
        return [RingCache(self.config.sliding_window, capacity) for _ in self.ar.layers]
