"""One network three times: PyTorch in float64 (the oracle) and float32 (the yardstick), and MLX."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import mlx.core as mx
import numpy as np
import torch

import mlx_port.codecs.dac
import mlx_port.dia.dia
import mlx_port.dia.engine
import mlx_port.dia.pipeline
import mlx_port.host
import torch_ref.codecs.dac
import torch_ref.dia.dia
import torch_ref.dia.engine
import torch_ref.dia.pipeline
import torch_ref.host
from tests.tiny.dia import Weights
from tests.tolerance import assert_within
from tts_core.codecs.dac import mlx_axes


@dataclass(frozen=True, eq=False)
class Side:
    """A framework with its networks. Inputs and outputs are NumPy; codec latents stand as (B, C, T)."""

    name: str
    dtype: Any
    code: dict[str, ModuleType]  # "dia", "dac", "loop", "host", "loading"

    def array(self, x: np.ndarray) -> Any:
        """Floating numbers in this side's precision, integers as they are."""
        if self.name == "mlx":
            return mx.array(x.astype(np.float32) if x.dtype.kind == "f" else x)
        return torch.from_numpy(np.ascontiguousarray(x)).to(self.dtype if x.dtype.kind == "f" else None)

    def numpy(self, x: Any) -> np.ndarray:
        return np.array(x) if self.name == "mlx" else x.detach().numpy()

    def latents(self, x: np.ndarray) -> Any:
        """(B, C, T) into this side's own order."""
        return self.array(x.transpose(0, 2, 1) if self.name == "mlx" else x)

    def from_latents(self, x: Any) -> np.ndarray:
        value = self.numpy(x)
        return value.transpose(0, 2, 1) if self.name == "mlx" else value

    def dia(self, weights: Weights) -> Any:
        return self._filled(self.code["dia"].Dia, weights)

    def dac(self, weights: Weights) -> Any:
        return self._filled(self.code["dac"].Dac, weights)

    def pipeline(self, dia: Weights, dac: Weights) -> Any:
        return self.code["pipeline"].compose(self.dia(dia), self.dac(dac))

    def _filled(self, kind: type, weights: Weights) -> Any:
        if self.name != "mlx":
            with torch.device("meta"):
                network = kind(weights.config)
            state = {name: self.array(weights.read(name)) for name in weights.names()}
            network.load_state_dict(state, strict=True, assign=True)
            return network.eval()
        network = kind(weights.config)
        network.load_weights([(name, _mlx_layout(name, weights.read(name))) for name in weights.names()])
        network.eval()
        return network


def _mlx_layout(name: str, tensor: np.ndarray) -> mx.array:
    axes = mlx_axes(name, tensor.ndim)
    return mx.array(tensor if axes is None else tensor.transpose(axes))


TORCH = {
    "dia": torch_ref.dia.dia,
    "dac": torch_ref.codecs.dac,
    "engine": torch_ref.dia.engine,
    "host": torch_ref.host,
    "pipeline": torch_ref.dia.pipeline,
}
MLX = {
    "dia": mlx_port.dia.dia,
    "dac": mlx_port.codecs.dac,
    "engine": mlx_port.dia.engine,
    "host": mlx_port.host,
    "pipeline": mlx_port.dia.pipeline,
}
ORACLE = Side("torch", torch.float64, TORCH)
YARDSTICK = Side("torch", torch.float32, TORCH)
PORT = Side("mlx", mx.float32, MLX)
SIDES = {"torch_ref": YARDSTICK, "mlx_port": PORT}


def assert_parity(what: str, run: Callable[[Side], np.ndarray]) -> None:
    """Require run(MLX) to be as close to run(torch float64) as run(torch float32) says that rounding is."""
    assert_within(run(PORT), run(YARDSTICK), run(ORACLE), what)
