"""MARS5's residual transformer on both sides, NumPy in and out, through the public doors."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.golden.bench import Bench
from tests.golden.cases import existing
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
    return Bench.load(side, lambda kind: _loaded(kind, folder / f"{checkpoint}.safetensors"))


def formulas(side: str) -> Bench[NarSide]:
    """The diffusion's formulas, which need no network."""
    return Bench.load(side, lambda kind: _loaded(kind, None))


@cache
def _loaded(kind: str, file: Path | None) -> NarSide:
    if file is None:
        return NarSide(kind, None)
    return NarSide(kind, _mlx(file) if kind == "mlx" else _torch(file, kind))


def _torch(file: Path, kind: str) -> Any:
    from torch_ref.loading import open_networks

    dtype = "float64" if kind == "float64" else "float32"
    networks = open_networks([existing(file)], kinds=["mars5_nar"], device="cpu", dtype=dtype)
    return networks["mars5_nar"].requires_grad_(False)


def _mlx(file: Path) -> Any:
    from converters.convert import convert
    from converters.published import open_published
    from mlx_port.loading import open_networks

    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "converted"
        convert(open_published([existing(file)], parts=["mars5_nar"]), made, dtype="float32")
        return open_networks(made, kinds=["mars5_nar"])["mars5_nar"]
