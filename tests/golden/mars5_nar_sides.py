"""MARS5's residual transformer on both sides, NumPy in and out, from the published file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from safetensors.numpy import load_file

from tests.golden.cases import existing
from tests.golden.sides import Bench, Side
from tts_core import mars5


@dataclass(frozen=True)
class Weights:
    """The published file's tensors, in float32."""

    config: mars5.ResidualTransformerConfig
    tensors: dict[str, np.ndarray]


def bench(side: str, folder: Path, checkpoint: str) -> Bench:
    """The network of `checkpoint`, which a case names, on the side under test and as its oracle."""
    return Bench(*(_side(kind, folder / f"{checkpoint}.safetensors") for kind in (side, "torch", "float64")))


def formulas(side: str) -> Bench:
    """The diffusion's formulas, which need no network."""
    return Bench(*(_side(kind, None) for kind in (side, "torch", "float64")))


@cache
def _side(kind: str, file: Path | None) -> Side:
    """kind: "mlx", or "torch" in float32, or "float64"."""
    return (_mlx if kind == "mlx" else _torch)(None if file is None else _read(file), kind)


@cache
def _read(file: Path) -> Weights:
    tensors = {name: tensor.astype(np.float32) for name, tensor in load_file(existing(file)).items()}
    beside = json.loads(existing(file.with_suffix(".json")).read_text())
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    config = mars5.residual_transformer_from_shapes(shapes, beside)
    assert mars5.residual_transformer_parameter_shapes(config) == shapes, f"{file}: other tensors"
    return Weights(config, tensors)


def _torch(weights: Weights | None, kind: str) -> Side:
    import torch

    from torch_ref.mars5 import diffusion, reverse
    from torch_ref.mars5.residual_transformer import ResidualTransformer

    dtype = torch.float64 if kind == "float64" else torch.float32

    def to_device(array: np.ndarray) -> torch.Tensor:
        tensor = torch.from_numpy(np.array(array, order="C"))
        return tensor.to(dtype) if tensor.is_floating_point() else tensor

    network = None
    if weights is not None:
        with torch.device("meta"):
            network = ResidualTransformer(weights.config)
        state = {name: to_device(tensor) for name, tensor in weights.tensors.items()}
        network.load_state_dict(state, assign=True)
        network.eval().requires_grad_(False)
    parts = SimpleNamespace(network=network, diffusion=diffusion, reverse=reverse)
    return Side(parts, to_device, lambda tensor: tensor.numpy().copy(), channels_last=False)


def _mlx(weights: Weights | None, kind: str) -> Side:
    import mlx.core as mx

    from mlx_port.mars5 import diffusion, reverse
    from mlx_port.mars5.residual_transformer import ResidualTransformer

    network = None
    if weights is not None:
        network = ResidualTransformer(weights.config)
        network.load_weights(
            [(name, mx.array(tensor)) for name, tensor in weights.tensors.items()], strict=True
        )
    parts = SimpleNamespace(network=network, diffusion=diffusion, reverse=reverse)
    return Side(parts, mx.array, np.array, channels_last=False)
