"""Runs of a model's networks, which `mlx-port verify` watches module by module, and their inputs by a seed.

A model lists its runs in `probes(sources)`, which its `code` names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np

from tts_core import models
from tts_core.config import Configs
from tts_core.errors import UsageError

TEXT = "The quick brown fox jumps over the lazy dog. Does it? It does."
METHODS = ("encode", "decode")  # of quantizers, which a run may watch as well


@dataclass(frozen=True)
class Framework:
    """A side's framework with a dtype, built in the side's `watch.py`.

    concatenate: joins arrays along an axis.
    array: converts from NumPy; floats become the dtype, or that of a second array.
    host: converts to NumPy; floats become at least float32.
    transposed: arrays of a codec, (B, T, C), in the side's own order; or back.
    """

    concatenate: Callable[..., Any]
    array: Callable[..., Any]
    host: Callable[[Any], np.ndarray]
    transposed: Callable[[Any], Any]


@dataclass(frozen=True)
class InputSources:
    """The sources of inputs.

    configs, documents: of the model, by kind.
    rows: number that a decoder reads.
    seconds: length of the sound.
    """

    configs: Configs
    documents: Mapping[str, Mapping[str, str]]
    rows: int
    seconds: float
    seed: int

    def check_rows(self, limit: int) -> None:
        """Raise UsageError if `rows` is outside 2 .. `limit`."""
        if self.rows > limit:
            raise UsageError(f"--rows: {self.rows} is outside 2 .. {limit}, this model's limit of rows")

    def random(self) -> np.random.Generator:
        """Create a generator of random numbers from the seed."""
        return np.random.default_rng(self.seed)

    def codes(self, books: int, size: int, frames: int) -> np.ndarray:
        """Draw codes. (books, frames) int32."""
        return self.random().integers(0, size, (books, frames), dtype=np.int32)


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
class Probe:
    """One run of a network.

    part: of the model, in the report.
    kind: of network, for tts_core.models.network.
    inputs: given to a port's call of the same name; NumPy arrays, texts or None.
    run: runs the network of a side. Returns arrays, or lists of them, by name; the last one is the result
    of the whole network.
    rows: regular expression of the modules, or of their METHODS, whose outputs are compared.
    transposed: regular expression of those rows that are (B, C, T) in torch_ref and (B, T, C) in mlx_port.
    half: of a codec, a part of the run's name.
    entries: a codec's tensor below a quantizer with the codebook's entries, and the distance that selects
    them.
    targets: the codes that the logits predict, negative for positions without one.
    groups: parts of tensors' names → line of the report; others are grouped by module.
    network: module and class of the network in a side's package, if not the kind's own.
    """

    part: str
    kind: str
    inputs: Mapping[str, Any]
    run: Callable[[Any, Framework], Mapping[str, Any]]
    rows: str = ""
    transposed: str = ""
    half: str = ""
    entries: tuple[str, Literal["directions", "points"]] | None = None
    targets: np.ndarray | None = None
    groups: Mapping[str, str] = field(default_factory=dict)
    network: str | None = None

    @property
    def name(self) -> str:
        """Name of the run."""
        return f"{self.part} {self.half}" if self.half else self.part

    def network_class(self, package: str) -> Any:
        """Import the network's class from a side's package."""
        return models.class_of(package, self.network or models.network(self.kind).network)

    def rows_in(self, network: Any) -> list[str]:
        """List the names of modules with weights, and of methods, to watch in a network of torch_ref."""
        found = [
            name
            for at, module in network.named_modules()
            if any(True for _ in module.parameters())
            for name in (at, *(f"{at}.{method}" for method in METHODS if hasattr(module, method)))
        ]
        return [name for name in found if re.fullmatch(self.rows, name)]


def probes(model: str, sources: InputSources) -> list[Probe]:
    """List the runs of a model, in order."""
    return models.MODELS[model].code().probes(sources)


def passes(rows: int) -> list[tuple[int, int]]:
    """List the calls in which a decoder reads its rows: half at once, then others, then the last one."""
    half, last = max(1, rows // 2), max(1, rows - 1)
    return [span for span in ((0, half), (half, last), (last, rows)) if span[0] < span[1]]


def single_passes(rows: int) -> list[tuple[int, int]]:
    """List the calls for a ring cache: almost all rows at once, then two, one at a time."""
    first = max(1, rows - 2)
    return [(0, first), *((row, row + 1) for row in range(first, rows))]


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
