"""Codecs on both sides, NumPy in and out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.golden.bench import Bench, built, network, outputs
from tests.sides import Side, Stored


@dataclass(frozen=True)
class CodecSide(Side):
    """A side with a codec: DAC, EnCodec, Mimi or Vocos."""

    codec: Any

    def conv(self, module: Callable[[Any], Any], x: np.ndarray) -> np.ndarray:
        """Run a part of the codec. (B, C, T) → (B, C, T) in either framework."""
        return self.from_channels(module(self.channels(x)))

    def latents(self, codes: np.ndarray) -> np.ndarray:
        """(B, q, T) → (B, C, T)."""
        return self.from_channels(self.codec.quantizer.decode(self.array(codes)))

    def outputs(self, run: Callable[[], Any], *names: str) -> dict[str, np.ndarray]:
        """Outputs of the codec's modules by name, in this side's own order."""
        return outputs(self, self.codec, run, *names)

    def encode(self, samples: np.ndarray) -> np.ndarray:
        """(B, L) → (B, Q, T)."""
        return self.numpy(self.codec.encode(samples))

    def decode(self, codes: np.ndarray) -> np.ndarray:
        """(B, q, T) → (B, L)."""
        return self.numpy(self.codec.decode(codes))


def codec_bench(side: str, kind: str, *files: Path) -> Bench[CodecSide]:
    """files: as in `part_of`."""
    return Bench.load(side, lambda each: CodecSide(each, network(each, kind, *files)))


def bench_of(side: str, kind: str, weights: Stored) -> Bench[CodecSide]:
    """From weights in memory."""
    return Bench.load(side, lambda each: CodecSide(each, built(each, kind, weights)))
