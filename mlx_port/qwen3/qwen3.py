"""Qwen3-TTS: a talker over frames, and a predictor of the other codes of each; for clones, a speaker encoder.

Upstream: QwenLM/Qwen3-TTS@022e286, Apache-2.0.
No known difference besides those of blocks.py.
"""

from __future__ import annotations

from mlx import nn

from mlx_port.qwen3.speaker_encoder import SpeakerEncoder
from mlx_port.qwen3.talker import Talker
from tts_core.qwen3.config import Qwen3Config


class Qwen3(nn.Module):
    """All networks under the published names."""

    def __init__(self, config: Qwen3Config):
        super().__init__()
        self.config = config
        self.talker = Talker(config)
        encoder = config.speaker_encoder
        self.speaker_encoder = None if encoder is None else SpeakerEncoder(encoder)
