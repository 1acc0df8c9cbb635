"""The runs with which `mlx-port verify` compares two sides, and their shared inputs, from a seed in NumPy.

A model lists its runs in `tts_core/<model>/ladder.py`, in `ladder(given)`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from tts_core.config import Configs
from tts_core.errors import UsageError
from tts_core.nn.layer_order import Stage, State
from tts_core.nn.layers import Layers

TEXT = "The quick brown fox jumps over the lazy dog. Does it? It does."


@dataclass(frozen=True)
class InputSources:
    """The sources of inputs.

    configs, documents: of the model, by kind.
    rows: number that a decoder reads.
    seconds: length of the sound.
    made: earlier outputs of the oracle.
    """

    configs: Configs
    documents: Mapping[str, Mapping[str, str]]
    rows: int
    seconds: float
    seed: int
    made: State = field(default_factory=dict)

    def check_rows(self, room: int) -> None:
        """Raise UsageError if `rows` is outside 2 .. `room`."""
        if self.rows > room:
            raise UsageError(f"--rows: {self.rows} is outside 2 .. {room}, this model's limit of rows")

    def codes(self, books: int, size: int, frames: int) -> np.ndarray:
        """Return codes (books, frames): the codec's own, repeated as needed, or random ones if they do not
        fit.
        """
        codes = self.made["codes"]
        if codes.shape[1] < books or codes.max() >= size:
            codes = np.random.default_rng(self.seed).integers(0, size, (1, books, frames), dtype=np.int32)
        return codes[0, :books, np.arange(frames) % codes.shape[2]].T.astype(np.int32)


class FrameSizes(Protocol):
    """A codec's configuration: its rates and the length of a frame."""

    @property
    def sample_rate(self) -> int:
        """Samples per second, in Hz."""
        ...

    @property
    def frame_rate(self) -> float:
        """Frames per second, in Hz."""
        ...

    @property
    def hop_length(self) -> int:
        """Samples per frame."""
        ...


@dataclass(frozen=True)
class Rung:
    """One run of a network, or of half of it, from inputs to its last layer.

    part: its name in the report.
    layers: run its stages, on both sides.
    state: builds its inputs.
    keeps: arrays that later rungs read.
    targets: the codes that the logits of an input predict, negative for positions without one.
    groups: report line for a tensor of this name; None groups tensors by module.
    """

    part: str
    layers: type[Layers]
    stages: list[Stage]
    state: Callable[[InputSources], State]
    keeps: tuple[str, ...] = ()
    targets: Callable[[State], np.ndarray] | None = None
    groups: Callable[[str], str] | None = None

    @property
    def kind(self) -> str:
        """Kind of network, for tts_core.models.network."""
        return self.layers.KIND


def ladder(model: str, given: InputSources) -> list[Rung]:
    """List the rungs of a model, in order. Raises UsageError for more rows than it has room for."""
    return importlib.import_module(f"tts_core.{model}.ladder").ladder(given)


def signal(config: FrameSizes, seconds: float, seed: int) -> np.ndarray:
    """Generate whole frames of `sound` at a codec's rate. (1, L) float32 in [-1, 1]."""
    frames = max(2, round(seconds * config.frame_rate))
    return sound(config.sample_rate, frames * config.hop_length, seed)[None]


def sound(sample_rate: int, samples: int, seed: int) -> np.ndarray:
    """Generate a voiced, gliding sound with syllables and noise. (L,) float32 in [-1, 1]."""
    rng = np.random.default_rng(seed)
    time = np.arange(samples) / sample_rate
    pitch = 120 + 40 * np.sin(2 * np.pi * 3 * time + rng.uniform(0, 6))
    phase = 2 * np.pi * np.cumsum(pitch) / sample_rate
    voiced = sum(np.sin(k * phase + rng.uniform(0, 6)) / k for k in range(1, 21))
    syllables = 0.55 - 0.45 * np.cos(2 * np.pi * 4 * time)
    made = 0.3 * syllables * voiced + 0.02 * rng.standard_normal(samples)
    return np.clip(made, -1, 1).astype(np.float32)


def no_codes(samples: np.ndarray, hop_length: int) -> np.ndarray:
    """Return codes without any codebook, for quantizers to append to. (1, L) → (1, 0, T)."""
    return np.zeros((1, 0, samples.shape[1] // hop_length), np.int32)
