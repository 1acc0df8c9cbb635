"""The side under test against golden vectors, bounded by PyTorch in float32 and float64."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from converters.published import open_published
from tests.golden.bench import Bench
from tests.golden.cases import existing
from tests.tiny.metavoice_audio import AudioSide
from tests.tolerance import assert_golden, assert_within

Compute = Callable[[AudioSide], np.ndarray]
FILES = {"metavoice_speaker_encoder": "speaker_encoder.pt", "mbd": "mbd_comp_8.pt"}


class AudioBench(Bench[AudioSide]):
    """Comparisons that also hold what the vectors' README asks for."""

    def close(self, what: str, golden: np.ndarray, compute: Compute, least: float) -> None:
        """The derived bound in both directions, and at least what the README asks for."""
        own, known, truth = self.results(compute)
        assert_golden(own, golden, known, truth, what)
        near(what, own, golden, least)

    def follow(self, what: str, golden: np.ndarray, compute: Compute, least: float) -> None:
        """For whole runs: the sides in the derived bound, the golden vector as near as its README says.

        There upstream's float32 schedule is one more cause of difference.
        """
        own, known, truth = self.results(compute)
        assert_within(own, known, truth, what)
        near(what, own, golden, least)


def near(what: str, own: np.ndarray, golden: np.ndarray, tolerance: float) -> None:
    """Require equal shapes and a largest absolute difference within `tolerance`."""
    assert own.shape == golden.shape, f"{what}: shape {own.shape}, expected {golden.shape}"
    worst = float(np.abs(own.astype(np.float64) - golden).max(initial=0))
    assert worst <= tolerance, f"{what}: differs by {worst:.3e}, more than {tolerance:.1e}"


def audio_bench(side: str, folder: Path) -> AudioBench:
    """A bench that reads each network on first use."""
    return AudioBench(*(_side(kind, folder) for kind in (side, "torch", "float64")))


@cache
def _side(kind: str, folder: Path) -> AudioSide:
    def part(network: str) -> Any:
        return open_published([existing(folder / FILES[network])], parts=(network,)).parts[network]

    return AudioSide(kind, part)
