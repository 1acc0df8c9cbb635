"""Dia2's depformer: the other codes of a frame, one after the other, each from those before.

Upstream: nari-labs/dia2@8687268, Apache-2.0; parameter names are the published ones, sets of weights are
numbered without the gaps of their ids.
No known difference besides those of blocks.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from torch import Tensor, nn

from torch_ref.dia2.blocks import MLP, RMSNorm, TextEmbedding, attend, project, split_heads
from torch_ref.dia2.transformer import logits_of
from torch_ref.layers.cache import KeyValueCache
from torch_ref.layers.rope import RotaryPositions, Rotation
from tts_core.dia2.config import Dia2Config


class ScheduledAttention(nn.Module):
    """Attention with one set of projections for some stages, another for others. (B, 1, E) → same."""

    def __init__(self, config: Dia2Config):
        super().__init__()
        stack, sets = config.depformer, range(len(config.weight_sets))
        rows, self.head_dim = stack.num_attention_heads * stack.head_dim, stack.head_dim
        self.in_proj = nn.ModuleList(nn.Linear(stack.hidden_size, 3 * rows, bias=False) for _ in sets)
        self.out_proj = nn.ModuleList(nn.Linear(rows, stack.hidden_size, bias=False) for _ in sets)
        self.q_norm = RMSNorm(stack.head_dim, config.norm_eps)
        self.k_norm = RMSNorm(stack.head_dim, config.norm_eps)

    def forward(self, x: Tensor, weights: int, rotation: Rotation | None, cache: KeyValueCache) -> Tensor:
        """weights: of the set of projections."""
        queries, keys, values = (
            split_heads(part, self.head_dim) for part in project(self.in_proj[weights], x).chunk(3, dim=-1)
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

    def forward(self, x: Tensor, weights: int, rotation: Rotation | None, cache: KeyValueCache) -> Tensor:
        x = x + self.self_attention(self.pre_norm(x), weights, rotation, cache)
        return x + self.mlp(self.post_norm(x))


class Depformer(nn.Module):
    """The network that runs Q - 1 times a step, with a new cache at each step."""

    def __init__(self, config: Dia2Config):
        super().__init__()
        stack, ids, stages = config.depformer, config.audio_vocab_size, config.n_streams - 1
        width = stack.hidden_size
        self.stage_sets, self.codebook_size = config.stage_sets, config.codebook_size
        self.audio_embeds = nn.ModuleList(nn.Embedding(ids, width) for _ in range(stages))
        self.text_embed = (
            TextEmbedding(config.text_vocab_size, width, width, config.text_pad_id)
            if config.depformer_has_text
            else None
        )
        self.depformer_in = nn.ModuleList(
            nn.Linear(config.transformer.hidden_size, width, bias=False) for _ in config.weight_sets
        )
        self.layers = nn.ModuleList(DepformerLayer(config) for _ in range(stack.num_hidden_layers))
        self.norm = RMSNorm(width, config.norm_eps)
        self.logits = nn.ModuleList(nn.Linear(width, ids, bias=False) for _ in range(stages))
        theta = config.rope_max_timescale / config.rope_min_timescale
        self.rotary = (
            RotaryPositions(stages, stack.head_dim, theta, config.rope_min_timescale)
            if config.depformer_has_rope
            else None
        )

    def embed(self, stage: int, hidden: Tensor, previous: Tensor, text: tuple[Tensor, Tensor]) -> Tensor:
        """Compute a stage's input. (B, D), ids (B,), the step's new text ids (B,) twice → (B, 1, E)."""
        weights = self.stage_sets[stage]
        x = project(self.depformer_in[weights], hidden)
        read = self.audio_embeds[stage](previous).to(x.dtype)
        if stage == 0 and self.text_embed is not None:
            read = read + self.text_embed(*text).to(x.dtype)
        x = x + read
        return x[:, None]

    def forward(
        self,
        stage: int,
        hidden: Tensor,
        previous: Tensor,
        text: tuple[Tensor, Tensor],
        cache: Sequence[KeyValueCache],
    ) -> Tensor:
        """Compute the logits of a stage's code.

        hidden: (B, D) of the transformer.
        previous: (B,) code.
        text: ids of both streams after this step's action, (B,) each; stage 0 may read them.
        → (B, codebook size) at least float32.
        """
        x = self.embed(stage, hidden, previous, text)
        rotation = None if self.rotary is None else self.rotary(stage, 1)
        for layer, rows in zip(self.layers, cache, strict=True):
            x = layer(x, self.stage_sets[stage], rotation, rows)
        return self.head(stage, self.norm(x))[:, 0]

    def head(self, stage: int, x: Tensor) -> Tensor:
        """Compute a stage's logits, of codes only. (B, 1, E) → (B, 1, codebook size)."""
        return logits_of(cast(nn.Linear, self.logits[stage]), x)[..., : self.codebook_size]

    def new_cache(self) -> list[KeyValueCache]:
        """Create an empty cache for every layer, with room for all stages."""
        return [KeyValueCache(len(self.stage_sets)) for _ in self.layers]
