"""MetaVoice's second stage: text and two codebooks in, logits of the other codebooks out, in one pass.

Upstream: metavoiceio/metavoice-src, July 2024 (Apache-2.0), fam/llm/model.py and mixins/non_causal.py;
parameter names are those of its published checkpoint.
Differs from upstream: no known difference. Padding is not masked: the window is always full.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torch_ref.layers.attention import scaled_dot_product_attention
from torch_ref.limits.remedies import at_least_float32
from torch_ref.metavoice.first_stage import merge_heads, split_heads
from tts_core.metavoice.config import LAYER_NORM_EPS, SecondStageConfig


class LayerNorm(nn.Module):
    """(x - mean) / sqrt(variance + eps) · weight (+ bias), in float32. (..., D) → same."""

    def __init__(self, width: int, bias: bool):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        weight, bias = at_least_float32(self.weight), self.bias
        bias = None if bias is None else at_least_float32(bias)
        return F.layer_norm(at_least_float32(x), weight.shape, weight, bias, LAYER_NORM_EPS).to(x.dtype)


class SelfAttention(nn.Module):
    """Self-attention over all positions. (B, W, D) → same."""

    def __init__(self, width: int, heads: int, bias: bool):
        super().__init__()
        self.heads = heads
        self.c_attn = nn.Linear(width, 3 * width, bias=bias)
        self.c_proj = nn.Linear(width, width, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        queries, keys, values = (split_heads(part, self.heads) for part in self.c_attn(x).chunk(3, dim=-1))
        return self.c_proj(merge_heads(scaled_dot_product_attention(queries, keys, values)))


class MLP(nn.Module):
    """Feed-forward with the exact GELU. (B, W, D) → same."""

    def __init__(self, width: int, inner: int, bias: bool):
        super().__init__()
        self.c_fc = nn.Linear(width, inner, bias=bias)
        self.c_proj = nn.Linear(inner, width, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.c_proj(F.gelu(self.c_fc(x)))


class Block(nn.Module):
    """Pre-norm attention and feed-forward. (B, W, D) → same."""

    def __init__(self, config: SecondStageConfig):
        super().__init__()
        self.ln_1 = LayerNorm(config.hidden_size, config.bias)
        self.attn = SelfAttention(config.hidden_size, config.num_attention_heads, config.bias)
        self.ln_2 = LayerNorm(config.hidden_size, config.bias)
        self.mlp = MLP(config.hidden_size, config.intermediate_size, config.bias)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Transformer(nn.Module):
    """Embeddings, blocks and a last norm. (B, rows, W) → (B, W, D)."""

    def __init__(self, config: SecondStageConfig):
        super().__init__()
        self.wtes = nn.ModuleList(nn.Embedding(size, config.hidden_size) for size in config.vocab_sizes)
        self.wpe = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.h = nn.ModuleList(Block(config) for _ in range(config.num_hidden_layers))
        self.ln_f = LayerNorm(config.hidden_size, config.bias)

    def forward(self, tokens: Tensor, speakers: Tensor | None) -> Tensor:
        x = self.embed(tokens, speakers)
        for block in self.h:
            x = block(x)
        return self.ln_f(x)

    def embed(self, tokens: Tensor, speakers: Tensor | None) -> Tensor:
        """Sum the embeddings of all rows, position and speaker."""
        x = self.wtes[0](tokens[:, 0])
        for row, table in enumerate(self.wtes[1:], start=1):
            x = x + table(tokens[:, row])
        x = x + self.wpe.weight
        return x if speakers is None else x + speakers


class SecondStage(nn.Module):
    """The whole network. Items of a batch are independent of each other."""

    def __init__(self, config: SecondStageConfig):
        super().__init__()
        self.config = config
        self.transformer = Transformer(config)
        self.speaker_cond_pos = nn.Linear(config.speaker_embedding_size, config.hidden_size, bias=False)
        self.lm_heads = nn.ModuleList(
            nn.Linear(config.hidden_size, size, bias=False) for size in config.target_vocab_sizes
        )

    def forward(self, tokens: Tensor, embeddings: Tensor | None) -> Tensor:
        """Compute logits of every predicted codebook at every position.

        tokens: (B, rows, W), W the full window.  embeddings: of speakers, (B, E), or None. → (B, Q, W, V)
        float32.
        """
        speakers = None
        if embeddings is not None:
            speakers = self.speaker_cond_pos(embeddings.to(self.speaker_cond_pos.weight.dtype))[:, None]
        hidden = self.transformer(tokens, speakers)
        return torch.stack([at_least_float32(head(hidden)) for head in self.lm_heads], dim=1)
