"""Bytes that a model's step reads, and a stand-in for a recording, for `mlx-port bench`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tts_core.config import Configs
from tts_core.memory.weights import weight_bytes
from tts_core.models import MODELS, Model
from tts_core.prompt import Prompt, Reference

VOICE_RATE, VOICE_SECONDS = 24_000, 3.0


def step_bytes(name: str, configs: Configs, dtype: str, quantization: Mapping[str, Any] | None = None) -> int:
    """Count the bytes of weights that a step reads; caches and activations are not counted.

    quantization: as in config.json.
    """
    return weight_bytes(name, configs[name], dtype, quantization, counts=MODELS[name].speed.reads)


def voice(facts: Model) -> Prompt | None:
    """Return a recording for models that need one: a voiced tone that rises and falls, not speech."""
    if not facts.needs_voice:
        return None
    seconds = np.arange(int(VOICE_RATE * VOICE_SECONDS)) / VOICE_RATE
    phase = 2 * np.pi * (120 * seconds + 4 * np.sin(2 * np.pi * 3 * seconds))
    tone = sum(np.sin(harmonic * phase) / harmonic for harmonic in range(1, 20))
    loud = 0.1 * tone * (1 - 0.5 * np.cos(2 * np.pi * 4 * seconds))
    return Prompt((Reference(np.asarray(loud, np.float32), None, sample_rate=VOICE_RATE, name="voice"),))
