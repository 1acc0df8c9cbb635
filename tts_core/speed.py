"""Facts that `mlx-port bench` needs about a model: what a step is, what it reads, and stand-ins for files."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tts_core.config import Configs
from tts_core.memory.weights import weight_bytes
from tts_core.models import Documents, Model
from tts_core.prompt import Prompt, Reference

VOICE_RATE, VOICE_SECONDS = 24_000, 3.0


def _none(configs: Configs) -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True)
class Speed:
    """Facts about one model's steps; each model has one, `SPEED` in tts_core/<model>/speed.py.

    stages: of progress reports, in which steps run.
    unit: what a step makes.
    steps_per_frame: of codes.
    frame_rate: Hz, of the codes.
    layers: of the network that steps.
    reads: the tensors of the model's first network that every step reads, by name.
    options: of the model, that its text needs.
    documents: texts that fit a model of random weights, kind → name → text.
    """

    stages: tuple[str, ...]
    unit: str
    steps_per_frame: int
    frame_rate: Callable[[Configs], float]
    layers: Callable[[Configs], int]
    reads: Callable[[str], bool]
    text: str
    documents: Callable[[Configs], Documents]
    options: Callable[[Configs], Mapping[str, Any]] = _none

    def real_time(self, configs: Configs) -> float:
        """Milliseconds that a step may take to keep up with the speech."""
        return 1000 / (self.steps_per_frame * self.frame_rate(configs))


def speed(name: str) -> Speed:
    """Import the facts of a model. name: one of tts_core.models.NAMES."""
    return importlib.import_module(f"tts_core.{name}.speed").SPEED


def step_bytes(name: str, configs: Configs, dtype: str, quantization: Mapping[str, Any] | None = None) -> int:
    """Count the bytes of weights that a step reads; caches and activations are not counted.

    quantization: as in config.json.
    """
    return weight_bytes(name, configs[name], dtype, quantization, counts=speed(name).reads)


def voice(facts: Model) -> Prompt | None:
    """Return a recording for models that need one: a voiced tone that rises and falls, not speech."""
    if not facts.needs_voice:
        return None
    seconds = np.arange(int(VOICE_RATE * VOICE_SECONDS)) / VOICE_RATE
    phase = 2 * np.pi * (120 * seconds + 4 * np.sin(2 * np.pi * 3 * seconds))
    tone = sum(np.sin(harmonic * phase) / harmonic for harmonic in range(1, 20))
    loud = 0.1 * tone * (1 - 0.5 * np.cos(2 * np.pi * 4 * seconds))
    return Prompt((Reference(np.asarray(loud, np.float32), None, sample_rate=VOICE_RATE, name="voice"),))
