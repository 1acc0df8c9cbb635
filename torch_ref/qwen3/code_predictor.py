"""Qwen3-TTS's code predictor: the other codes of a frame, one after the other, each from those before.

Upstream: QwenLM/Qwen3-TTS@022e286, Apache-2.0; parameter names are the published ones.
No known difference besides those of blocks.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from torch import Tensor, nn

from torch_ref.layers.cache import KeyValueCache
from torch_ref.layers.norm import RMSNorm
from torch_ref.layers.rope import RotaryPositions
from torch_ref.qwen3.blocks import Cache, TransformerLayer, logits_of, run
from tts_core.qwen3.config import Qwen3Config


class PredictorModel(nn.Module):
    """Embeddings of the other codes, as wide as the talker, and the layers."""

    def __init__(self, config: Qwen3Config):
        super().__init__()
        stack, stages = config.predictor, config.n_codebooks - 1
        ids, width = config.codebook_size, config.talker.hidden_size
        self.codec_embedding = nn.ModuleList(nn.Embedding(ids, width) for _ in range(stages))
        self.layers = nn.ModuleList(TransformerLayer(stack) for _ in range(stack.num_hidden_layers))
        self.norm = RMSNorm(stack.hidden_size, stack.rms_norm_eps)


class CodePredictor(nn.Module):
    """The network that runs Q - 1 times a frame, with a new cache at each frame."""

    def __init__(self, config: Qwen3Config):
        super().__init__()
        stack, self.stages = config.predictor, config.n_codebooks - 1
        width, narrow, ids = config.talker.hidden_size, stack.hidden_size, config.codebook_size
        self.model = PredictorModel(config)
        self.lm_head = nn.ModuleList(nn.Linear(narrow, ids, bias=False) for _ in range(self.stages))
        self.small_to_mtp_projection = nn.Linear(width, narrow) if config.is_projected else nn.Identity()
        self.rotary = RotaryPositions(self.stages + 1, stack.head_dim, stack.rope_theta)

    def embed(self, stage: int, codes: Tensor) -> Tensor:
        """Embed the codes that stage `stage` drew. (...) → (..., D) of the talker."""
        return cast(nn.Embedding, self.model.codec_embedding[stage])(codes)

    def forward(self, stage: int, x: Tensor, cache: Sequence[Cache]) -> Tensor:
        """Compute a stage's logits. → (B, V) at least float32.

        x: (B, T, D) of the talker's width: for stage 0 its hidden state and the first code's embedding, later
        the embedding of the code before.
        """
        start = stage + 1 if stage else 0
        x = self.small_to_mtp_projection(x)
        x = run(self.model.layers, x, self.rotary(start, x.shape[1]), cache)
        return logits_of(self.lm_head[stage], self.model.norm(x[:, -1]))

    def new_cache(self) -> list[KeyValueCache]:
        """Create an empty cache for every layer, with room for all stages."""
        return [KeyValueCache(self.stages + 1) for _ in self.model.layers]
