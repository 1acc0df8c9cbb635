"""MARS5's residual transformer on both sides, NumPy in and out, through the public doors."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from tests.golden.bench import Bench, Side
from tests.golden.cases import existing


def bench(side: str, folder: Path, checkpoint: str) -> Bench:
    """The network of `checkpoint`, which a case names, on the side under test and as its oracle."""
    return Bench(*(_side(kind, folder / f"{checkpoint}.safetensors") for kind in (side, "torch", "float64")))


def formulas(side: str) -> Bench:
    """The diffusion's formulas, which need no network."""
    return Bench(*(_side(kind, None) for kind in (side, "torch", "float64")))


@cache
def _side(kind: str, file: Path | None) -> Side:
    """kind: "mlx", or "torch" in float32, or "float64"."""
    return _mlx(file) if kind == "mlx" else _torch(file, "float64" if kind == "float64" else "float32")


def _torch(file: Path | None, dtype: str) -> Side:
    import torch

    from torch_ref.loading import open_networks
    from torch_ref.mars5 import diffusion, reverse

    def to_device(array: np.ndarray) -> torch.Tensor:
        tensor = torch.from_numpy(np.array(array, order="C"))
        return tensor.to(getattr(torch, dtype)) if tensor.is_floating_point() else tensor

    network = None
    if file is not None:
        network = open_networks([existing(file)], kinds=["mars5_nar"], device="cpu", dtype=dtype)["mars5_nar"]
        network.requires_grad_(False)
    parts = SimpleNamespace(network=network, diffusion=diffusion, reverse=reverse)
    return Side(parts, to_device, lambda tensor: tensor.numpy().copy(), channels_last=False)


def _mlx(file: Path | None) -> Side:
    import mlx.core as mx

    from converters.convert import convert
    from converters.published import open_published
    from mlx_port.loading import open_networks
    from mlx_port.mars5 import diffusion, reverse

    network = None
    if file is not None:
        with tempfile.TemporaryDirectory() as folder:
            made = Path(folder) / "converted"
            convert(open_published([existing(file)], parts=["mars5_nar"]), made, dtype="float32")
            network = open_networks(made, kinds=["mars5_nar"])["mars5_nar"]
    parts = SimpleNamespace(network=network, diffusion=diffusion, reverse=reverse)
    return Side(parts, mx.array, np.array, channels_last=False)
