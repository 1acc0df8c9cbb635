"""Every codec by name, small."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tests.tiny.networks import tiny
from tts_core.codecs import encodec
from tts_core.codecs.encodec import EncodecConfig

CODECS = ("dac", "encodec", "mimi", "vocos", "qwen3_codec")
WEIGHTS: dict[str, Callable[[], Any]] = {name: partial(tiny, name) for name in CODECS}
ENCODERS = [name for name in WEIGHTS if name != "vocos"]
# further arguments
ENCODED = {"encodec": (2,), "mimi": (2,)}
DECODED = {"vocos": (0,)}


def codes_for(codec: Any) -> np.ndarray:
    """Twelve frames."""
    config, random = codec.config, np.random.default_rng(3)
    return random.integers(0, config.codebook_size, (1, config.n_codebooks, 12)).astype(np.int32)


def codebooks_at(config: EncodecConfig, kbps: float) -> int:
    return encodec.codebooks_at(kbps, config.sample_rate, config.hop_length, config.codebook_size)
