"""MARS5's residual transformer on both sides, NumPy in and out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.golden import bench as loading
from tests.golden.bench import Bench
from tests.sides import Side


@dataclass(frozen=True)
class NarSide(Side):
    """A side with the network; None where only the formulas are asked."""

    network: Any

    @property
    def diffusion(self) -> Any:
        return self.module("mars5.diffusion")

    @property
    def reverse(self) -> Any:
        return self.module("mars5.reverse")


def bench(side: str, folder: Path, checkpoint: str) -> Bench[NarSide]:
    """The network of `checkpoint`, which a case names."""
    file = folder / f"{checkpoint}.safetensors"
    return Bench.load(side, lambda kind: NarSide(kind, loading.network(kind, "mars5_nar", file)))


def formulas(side: str) -> Bench[NarSide]:
    """The diffusion's formulas, which need no network."""
    return Bench.load(side, lambda kind: NarSide(kind, None))
