"""MetaVoice's first stage: a causal transformer over text ids and two interleaved codebooks.

Upstream: metavoiceio/metavoice-src, July 2024 (Apache-2.0), fam/llm/fast_model.py and model.py; parameter
names are those of its published checkpoint.
Differs from upstream: the head is the token embedding itself, not a copy; the residual stream of a float16
network is float32, as it may exceed float16's range.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx
from mlx import nn

from mlx_port.layers.attention import scaled_dot_product_attention
from mlx_port.layers.cache import KeyValueCache
from mlx_port.layers.row_cache import RowCache
from tts_core.metavoice.config import FirstStageConfig
from tts_core.nn.packed import PackedCache

Cache = KeyValueCache | RowCache | PackedCache


class RMSNorm(nn.Module):
    """x / sqrt(mean(x²) + eps), in float32, then cast to the weight's dtype and multiplied with it.

    (..., D) → same, in the weight's dtype.
    """

    def __init__(self, width: int, eps: float):
        super().__init__()
        self.eps = eps
        self.weight = mx.ones((width,))

    def __call__(self, x: mx.array) -> mx.array:
        # the kernel casts its float32 quotient to the result's dtype before it multiplies
        return mx.fast.rms_norm(x, self.weight, self.eps).astype(self.weight.dtype)


class SwiGLU(nn.Module):
    """silu(w1 x) · (w3 x). (R, T, D) → (R, T, inner)."""

    def __init__(self, width: int, inner: int, bias: bool):
        super().__init__()
        self.w1 = nn.Linear(width, inner, bias=bias)
        self.w3 = nn.Linear(width, inner, bias=bias)

    def __call__(self, x: mx.array) -> mx.array:
        return nn.silu(self.w1(x)) * self.w3(x)


class MLP(nn.Module):
    """Gated feed-forward. (R, T, D) → same."""

    def __init__(self, width: int, inner: int, bias: bool):
        super().__init__()
        self.swiglu = SwiGLU(width, inner, bias)
        self.c_proj = nn.Linear(inner, width, bias=bias)

    def __call__(self, x: mx.array) -> mx.array:
        return self.c_proj(self.swiglu(x))


class SelfAttention(nn.Module):
    """Causal attention; positions are in the embeddings. (R, T, D) → same."""

    def __init__(self, width: int, heads: int, bias: bool):
        super().__init__()
        self.heads = heads
        self.c_attn = nn.Linear(width, 3 * width, bias=bias)
        self.c_proj = nn.Linear(width, width, bias=bias)

    def __call__(self, x: mx.array, cache: Cache) -> mx.array:
        """Attend from new rows, which follow the cached ones; each sees only itself and earlier rows."""
        queries, keys, values = (
            split_heads(part, self.heads) for part in mx.split(self.c_attn(x), 3, axis=-1)
        )
        keys, values = cache.extend(keys, values)
        causal, mask = cache.rule(queries.shape[2])
        attended = scaled_dot_product_attention(queries, keys, values, mask, is_causal=causal)
        return self.c_proj(merge_heads(attended))


class Block(nn.Module):
    """Pre-norm attention and feed-forward. (R, T, D) → same."""

    def __init__(self, config: FirstStageConfig):
        super().__init__()
        self.ln_1 = RMSNorm(config.hidden_size, config.norm_eps)
        self.attn = SelfAttention(config.hidden_size, config.num_attention_heads, config.bias)
        self.ln_2 = RMSNorm(config.hidden_size, config.norm_eps)
        self.mlp = MLP(config.hidden_size, config.intermediate_size, config.bias)

    def __call__(self, x: mx.array, cache: Cache) -> mx.array:
        x = x + self.attn(self.ln_1(x), cache)
        return x + self.mlp(self.ln_2(x))


class Transformer(nn.Module):
    """Embeddings, blocks and a last norm. (R, T) → (R, T, D)."""

    def __init__(self, config: FirstStageConfig):
        super().__init__()
        self.wtes = [nn.Embedding(config.vocab_size, config.hidden_size)]
        self.wpe = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.h = [Block(config) for _ in range(config.num_hidden_layers)]
        self.ln_f = RMSNorm(config.hidden_size, config.norm_eps)

    def __call__(self, tokens: mx.array, speakers: mx.array, cache: Sequence[Cache]) -> mx.array:
        x = self.embed(tokens, speakers, cache[0].length)
        for block, rows in zip(self.h, cache, strict=True):
            x = block(x, rows)
        return self.ln_f(x)

    def embed(self, tokens: mx.array, speakers: mx.array, start: int | mx.array) -> mx.array:
        """Sum token, position and speaker embeddings; a `start` on the device is all positions."""
        at = start if isinstance(start, mx.array) else slice(start, start + tokens.shape[1])
        x = self.wtes[0](tokens) + self.wpe.weight[at] + speakers
        return x.astype(mx.float32) if x.dtype == mx.float16 else x


class FirstStage(nn.Module):
    """The whole network: ids in, logits of the next ids out. Rows are independent of each other."""

    def __init__(self, config: FirstStageConfig):
        super().__init__()
        self.config = config
        self.transformer = Transformer(config)
        self.speaker_cond_pos = nn.Linear(config.speaker_embedding_size, config.hidden_size, bias=False)

    def speakers(self, embeddings: mx.array) -> mx.array:
        """Project speaker vectors, added at every position; zeros are no speaker. (R, E) → (R, 1, D)."""
        weight = self.speaker_cond_pos.weight
        return self.speaker_cond_pos(embeddings.astype(weight.dtype))[:, None]

    def __call__(self, tokens: mx.array, speakers: mx.array, cache: Sequence[Cache]) -> mx.array:
        """Compute logits for the id after each of `tokens`, which follow the cached ones.

        (R, T), (R, 1, D) → (R, T, V) float32.
        """
        return self.head(self.transformer(tokens, speakers, cache))

    def next_logits(self, tokens: mx.array, speakers: mx.array, cache: Sequence[Cache]) -> mx.array:
        """Compute logits only for the id after the last of `tokens`. (R, T), (R, 1, D) → (R, V) float32."""
        return self.head(self.transformer(tokens, speakers, cache)[:, -1])

    def head(self, hidden: mx.array) -> mx.array:
        """Compute logits as products with the token embedding. (..., D) → (..., V) float32, cast after the
        product.
        """
        return self.transformer.wtes[0].as_linear(hidden).astype(mx.float32)

    def new_cache(self, reserve: int) -> list[KeyValueCache]:
        """Create an empty cache for every layer, with room for `reserve` ids per row."""
        return [KeyValueCache(reserve) for _ in self.transformer.h]


def split_heads(x: mx.array, heads: int) -> mx.array:
    """Split heads. (R, T, H·E) → (R, H, T, E)."""
    return mx.unflatten(x, -1, (heads, -1)).swapaxes(1, 2)


def merge_heads(x: mx.array) -> mx.array:
    """Merge heads. (R, H, T, E) → (R, T, H·E)."""
    return mx.flatten(x.swapaxes(1, 2), 2)
