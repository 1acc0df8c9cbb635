"""Every codec of the real structure, small, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.tiny.codecs import encodec_config, encodec_weights, vocos_config, vocos_weights
from tests.tiny.dia import dac_config, dac_weights
from tests.tiny.mimi import mimi_config, mimi_weights
from tests.tiny.qwen3 import codec_config, codec_weights

WEIGHTS: dict[str, Callable[[], Any]] = {
    "dac": lambda: dac_weights(dac_config()),
    "encodec": lambda: encodec_weights(encodec_config()),
    "mimi": lambda: mimi_weights(mimi_config()),
    "vocos": lambda: vocos_weights(vocos_config()),
    "qwen3_codec": lambda: codec_weights(codec_config()),
}
ENCODERS = [name for name in WEIGHTS if name != "vocos"]
# further arguments
ENCODED = {"encodec": (2,), "mimi": (2,)}
DECODED = {"vocos": (0,)}


def codes_for(codec: Any) -> np.ndarray:
    """Twelve frames."""
    config, random = codec.config, np.random.default_rng(3)
    return random.integers(0, config.codebook_size, (1, config.n_codebooks, 12)).astype(np.int32)
