"""Dia2's transformer: a step of text and audio ids in, the action and the first code out.

Upstream: nari-labs/dia2@8687268, Apache-2.0; parameter names are the published ones.
No known difference besides those of blocks.py.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx
from mlx import nn

from mlx_port.dia2.blocks import MLP, Cache, RMSNorm, TextEmbedding, add, attend, project, split_heads
from mlx_port.layers.cache import KeyValueCache
from mlx_port.layers.rope import RotaryPositions, Rotation
from tts_core.dia2.config import Dia2Config, Dia2StackConfig


class Attention(nn.Module):
    """Grouped-query attention with normalized, rotated queries and keys. (B, T, D) → same."""

    def __init__(self, config: Dia2StackConfig, eps: float):
        super().__init__()
        width, self.head_dim = config.hidden_size, config.head_dim
        rows = config.num_attention_heads * config.head_dim
        key_rows = config.num_key_value_heads * config.head_dim
        self.q_proj = nn.Linear(width, rows, bias=False)
        self.k_proj = nn.Linear(width, key_rows, bias=False)
        self.v_proj = nn.Linear(width, key_rows, bias=False)
        self.o_proj = nn.Linear(rows, width, bias=False)
        self.q_norm = RMSNorm(config.head_dim, eps)
        self.k_norm = RMSNorm(config.head_dim, eps)

    def __call__(self, x: mx.array, rotation: Rotation, cache: Cache) -> mx.array:
        queries = self.q_norm(split_heads(project(self.q_proj, x), self.head_dim))
        keys = self.k_norm(split_heads(project(self.k_proj, x), self.head_dim))
        values = split_heads(project(self.v_proj, x), self.head_dim)
        return project(self.o_proj, attend(queries, keys, values, rotation, cache))


class TransformerLayer(nn.Module):
    """Pre-norm attention and feed-forward. (R, T, D) → same."""

    def __init__(self, config: Dia2StackConfig, eps: float):
        super().__init__()
        self.pre_norm = RMSNorm(config.hidden_size, eps)
        self.attn = Attention(config, eps)
        self.post_norm = RMSNorm(config.hidden_size, eps)
        self.mlp = MLP(config)

    def __call__(self, x: mx.array, rotation: Rotation, cache: Cache) -> mx.array:
        x = x + self.attn(self.pre_norm(x), rotation, cache)
        return x + self.mlp(self.post_norm(x))


class Transformer(nn.Module):
    """The network that runs once a step. Rows: conditional and unconditional ones.

    compute: dtype of activations between linears; None takes that of the embeddings.
    """

    def __init__(self, config: Dia2Config):
        super().__init__()
        stack, eps = config.transformer, config.norm_eps
        width, ids = stack.hidden_size, config.audio_vocab_size
        self.compute: mx.Dtype | None = None
        self.audio_embeds = [nn.Embedding(ids, width) for _ in range(config.n_streams)]
        self.text_embed = TextEmbedding(
            config.text_vocab_size, config.low_rank_dim, width, config.text_pad_id
        )
        self.layers = [TransformerLayer(stack, eps) for _ in range(stack.num_hidden_layers)]
        self.norm = RMSNorm(width, eps)
        self.action_head = nn.Linear(width, config.action_vocab_size, bias=False)
        self.cb0_head = nn.Linear(width, ids, bias=False)
        # a prefix may be as long as the context, and the context begins at its end
        self.rotary = RotaryPositions(
            2 * config.max_context_steps + 1,
            stack.head_dim,
            config.rope_max_timescale / config.rope_min_timescale,
            config.rope_min_timescale,
        )

    def embed(self, tokens: mx.array) -> mx.array:
        """Sum the embeddings of all streams, one after the other. (R, T, 2 + Q) → (R, T, D)."""
        x = self.text_embed(tokens[..., 0], tokens[..., 1])
        x = x.astype(self.compute or x.dtype)
        for stream, embedding in enumerate(self.audio_embeds):
            x = add(x, embedding(tokens[..., 2 + stream]))
        return x

    def __call__(self, tokens: mx.array, start: int | mx.array, cache: Sequence[Cache]) -> mx.array:
        """Read steps. tokens: (R, T, 2 + Q) → (R, T, D) after the last norm.

        start: position of the first one, for single steps also (R, 1, 1), for packed sequences (T,); after a
        prefix not the number of cached rows.
        """
        x, rotation = self.embed(tokens), self.rotary(start, tokens.shape[1])
        for layer, rows in zip(self.layers, cache, strict=True):
            x = layer(x, rotation, rows)
        return self.norm(x)

    def actions(self, hidden: mx.array) -> mx.array:
        """Compute the action's logits. (..., D) → (..., A) float32."""
        return logits_of(self.action_head, hidden)

    def codes(self, hidden: mx.array) -> mx.array:
        """Compute the first code's logits. (..., D) → (..., V) float32."""
        return logits_of(self.cb0_head, hidden)

    def new_cache(self) -> list[KeyValueCache]:
        """Create an empty cache for every layer."""
        return [KeyValueCache() for _ in self.layers]


def logits_of(layer: nn.Linear, hidden: mx.array) -> mx.array:
    """Compute logits in the weight's dtype. (..., D) → (..., V) float32."""
    return layer(hidden).astype(mx.float32)
