"""Qwen3-TTS: a talker over frames, a predictor of the other codes of each, and for clones a speaker encoder.

Upstream: QwenLM/Qwen3-TTS@022e286, Apache-2.0; parameter names are the published ones.
No known difference besides those of blocks.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from torch_ref.device import to_device
from torch_ref.layers.cache import KeyValueCache
from torch_ref.layers.norm import RMSNorm
from torch_ref.layers.rope import RotaryPositions
from torch_ref.limits.independent import silu
from torch_ref.qwen3.blocks import Cache, TransformerLayer, logits_of, run
from torch_ref.qwen3.speaker_encoder import SpeakerEncoder
from tts_core.qwen3.config import Qwen3Config
from tts_core.qwen3.layout import FRAME, SPEAKER, TalkerInputs


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
    """The network that runs Q - 1 times a frame, each code from those before; a new cache at each frame."""

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


class TextProjection(nn.Module):
    """Two linears around a SiLU. (..., D') → (..., D)."""

    def __init__(self, config: Qwen3Config):
        super().__init__()
        inner = config.text_hidden_size
        self.linear_fc1 = nn.Linear(inner, inner)
        self.linear_fc2 = nn.Linear(inner, config.talker.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear_fc2(silu(self.linear_fc1(x)))


class TalkerModel(nn.Module):
    """Embeddings of text and of first codes, and the layers."""

    def __init__(self, config: Qwen3Config):
        super().__init__()
        stack = config.talker
        self.codec_embedding = nn.Embedding(config.vocab_size, stack.hidden_size)
        self.text_embedding = nn.Embedding(config.text_vocab_size, config.text_hidden_size)
        self.layers = nn.ModuleList(TransformerLayer(stack) for _ in range(stack.num_hidden_layers))
        self.norm = RMSNorm(stack.hidden_size, stack.rms_norm_eps)


class Talker(nn.Module):
    """The network that runs once a frame, with the predictor of the frame's other codes."""

    def __init__(self, config: Qwen3Config):
        super().__init__()
        stack = config.talker
        self.model = TalkerModel(config)
        self.text_projection = TextProjection(config)
        self.codec_head = nn.Linear(stack.hidden_size, config.vocab_size, bias=False)
        self.code_predictor = CodePredictor(config)
        self.rotary = RotaryPositions(config.max_positions, stack.head_dim, stack.rope_theta)

    def embed_text(self, ids: Tensor) -> Tensor:
        """Embed text ids. (...) → (..., D)."""
        return self.text_projection(self.model.text_embedding(ids))

    def embed_frames(self, codes: Tensor) -> Tensor:
        """Sum the embeddings of a frame's codes. (B, Q, T) → (B, T, D)."""
        x = self.model.codec_embedding(codes[:, 0])
        for stage in range(self.code_predictor.stages):
            x = x + self.code_predictor.embed(stage, codes[:, stage + 1])
        return x

    def embed_layout(self, layout: TalkerInputs, speaker: Tensor | None, frames: Tensor | None) -> Tensor:
        """Embed what is read before speech, of one text or of several joined ones. → (1, T, D).

        speaker: (D,) vector of a recording, or (N, D).  frames: (1, Q, F) codes of a recording.
        """
        device = self.codec_head.weight.device
        text, codec = (to_device(ids, device).long() for ids in (layout.text, layout.codec))
        read = self.embed_text(text)
        x = torch.where((codec >= 0)[:, None], read + self.model.codec_embedding(codec.clamp(min=0)), read)
        if speaker is not None:
            rows = to_device(np.flatnonzero(layout.codec == SPEAKER), device)
            x = x.index_copy(0, rows, read[rows] + speaker.to(x.dtype))
        if frames is not None:
            rows = to_device(np.flatnonzero(layout.codec == FRAME), device)
            x = x.index_add(0, rows, self.embed_frames(frames)[0])
        return x[None]

    def forward(self, x: Tensor, start: int | Tensor, cache: Sequence[Cache]) -> Tensor:
        """Read positions. (B, T, D) → (B, T, D) after the last norm.

        start: position of the first one, for single steps also (B, 1, 1), for packed sequences (T,).
        """
        return self.model.norm(run(self.model.layers, x, self.rotary(start, x.shape[1]), cache))

    def logits(self, hidden: Tensor) -> Tensor:
        """Compute the logits of first codes. (..., D) → (..., V) at least float32."""
        return logits_of(self.codec_head, hidden)

    def new_cache(self) -> list[KeyValueCache]:
        """Create an empty cache for every layer."""
        return [KeyValueCache() for _ in self.model.layers]


class Qwen3(nn.Module):
    """All networks under the published names."""

    def __init__(self, config: Qwen3Config):
        super().__init__()
        self.config = config
        self.talker = Talker(config)
        encoder = config.speaker_encoder
        self.speaker_encoder = None if encoder is None else SpeakerEncoder(encoder)
