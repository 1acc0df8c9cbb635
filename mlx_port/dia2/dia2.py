"""Dia2: a transformer over delayed streams of text and audio, and a depformer over the codes of a frame.

Upstream: nari-labs/dia2@8687268, Apache-2.0.
Differs from upstream: weights may be narrower than float32; rotary tables are computed in float64 and are
long enough for any prefix; the unconditional rows are left out where guidance does not need them.
"""

from __future__ import annotations

from mlx import nn

from mlx_port.dia2.depformer import Depformer
from mlx_port.dia2.transformer import Transformer
from tts_core.dia2.config import Dia2Config


class Dia2(nn.Module):
    """Both networks under the published names."""

    def __init__(self, config: Dia2Config):
        super().__init__()
        self.config = config
        self.transformer = Transformer(config)
        self.depformer = Depformer(config)
