"""Dia2's depformer: the other codes of a frame, one after the other, each from those before.

Upstream: nari-labs/dia2@8687268, Apache-2.0; parameter names are the published ones, sets of weights are
numbered without the gaps of their ids.
No known difference besides those of blocks.py.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx
from mlx import nn

from mlx_port.dia2.blocks import MLP, RMSNorm, TextEmbedding, attend, project, split_heads
from mlx_port.dia2.transformer import logits_of
from mlx_port.layers.cache import KeyValueCache
from mlx_port.layers.rope import RotaryPositions, Rotation
from tts_core.dia2.config import Dia2Config


class ScheduledAttention(nn.Module):
    """Attention with one set of projections for some stages, another for others. (B, 1, E) → same."""

    def __init__(self, config: Dia2Config):
        super().__init__()
        stack, sets = config.depformer, range(len(config.weight_sets))
        rows, self.head_dim = stack.num_attention_heads * stack.head_dim, stack.head_dim
        self.in_proj = [nn.Linear(stack.hidden_size, 3 * rows, bias=False) for _ in sets]
        self.out_proj = [nn.Linear(rows, stack.hidden_size, bias=False) for _ in sets]
        self.q_norm = RMSNorm(stack.head_dim, config.norm_eps)
        self.k_norm = RMSNorm(stack.head_dim, config.norm_eps)

    def __call__(
        self, x: mx.array, weights: int, rotation: Rotation | None, cache: KeyValueCache
    ) -> mx.array:
        """weights: of the set of projections."""
        queries, keys, values = (
            split_heads(part, self.head_dim)
            for part in mx.split(project(self.in_proj[weights], x), 3, axis=-1)
        )
        attended = attend(self.q_norm(queries), self.k_norm(keys), values, rotation, cache)
        return project(self.out_proj[weights], attended)


class DepformerLayer(nn.Module):
    """Pre-norm attention and feed-forward; only the attention's projections depend on the stage.

    (B, 1, E) → same.
    """

    def __init__(self, config: Dia2Config):
        super().__init__()
        width = config.depformer.hidden_size
        self.pre_norm = RMSNorm(width, config.norm_eps)
        self.self_attention = ScheduledAttention(config)
        self.post_norm = RMSNorm(width, config.norm_eps)
        self.mlp = MLP(config.depformer)

    def __call__(
        self, x: mx.array, weights: int, rotation: Rotation | None, cache: KeyValueCache
    ) -> mx.array:
        x = x + self.self_attention(self.pre_norm(x), weights, rotation, cache)
        return x + self.mlp(self.post_norm(x))


class Depformer(nn.Module):
    """The network that runs Q - 1 times a step, with a new cache at each step."""

    def __init__(self, config: Dia2Config):
        super().__init__()
        stack, ids, stages = config.depformer, config.audio_vocab_size, config.n_streams - 1
        width = stack.hidden_size
        self.stage_sets, self.codebook_size = config.stage_sets, config.codebook_size
        self.audio_embeds = [nn.Embedding(ids, width) for _ in range(stages)]
        self.text_embed = (
            TextEmbedding(config.text_vocab_size, width, width, config.text_pad_id)
            if config.depformer_has_text
            else None
        )
        self.depformer_in = [
            nn.Linear(config.transformer.hidden_size, width, bias=False) for _ in config.weight_sets
        ]
        self.layers = [DepformerLayer(config) for _ in range(stack.num_hidden_layers)]
        self.norm = RMSNorm(width, config.norm_eps)
        self.logits = [nn.Linear(width, ids, bias=False) for _ in range(stages)]
        theta = config.rope_max_timescale / config.rope_min_timescale
        self.rotary = (
            RotaryPositions(stages, stack.head_dim, theta, config.rope_min_timescale)
            if config.depformer_has_rope
            else None
        )

    def embed(
        self, stage: int, hidden: mx.array, previous: mx.array, text: tuple[mx.array, mx.array]
    ) -> mx.array:
        """Compute a stage's input. (B, D), ids (B,), the step's new text ids (B,) twice → (B, 1, E)."""
        weights = self.stage_sets[stage]
        x = project(self.depformer_in[weights], hidden)
        read = self.audio_embeds[stage](previous).astype(x.dtype)
        if stage == 0 and self.text_embed is not None:
            read = read + self.text_embed(*text).astype(x.dtype)
        x = x + read
        return x[:, None]

    def __call__(
        self,
        stage: int,
        hidden: mx.array,
        previous: mx.array,
        text: tuple[mx.array, mx.array],
        cache: Sequence[KeyValueCache],
    ) -> mx.array:
        """Compute the logits of a stage's code.

        hidden: (B, D) of the transformer.
        previous: (B,) code.
        text: ids of both streams after this step's action, (B,) each; stage 0 may read them.
        → (B, codebook size) float32.
        """
        x = self.embed(stage, hidden, previous, text)
        rotation = None if self.rotary is None else self.rotary(stage, 1)
        for layer, rows in zip(self.layers, cache, strict=True):
            x = layer(x, self.stage_sets[stage], rotation, rows)
        return self.head(stage, self.norm(x))[:, 0]

    def head(self, stage: int, x: mx.array) -> mx.array:
        """Compute a stage's logits, of codes only. (B, 1, E) → (B, 1, codebook size)."""
        return logits_of(self.logits[stage], x)[..., : self.codebook_size]

    def new_cache(self) -> list[KeyValueCache]:
        """Create an empty cache for every layer, with room for all stages."""
        return [KeyValueCache(len(self.stage_sets)) for _ in self.layers]
