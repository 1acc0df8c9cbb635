"""The two sides as values: NumPy in and out, modules by name, networks from given weights.

A framework is imported when it is first used: the tests of one side run without the other.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

import numpy as np

from tests.tolerance import assert_within
from tts_core import models
from tts_core.shapes import mlx_axes

SIDES = {"torch": "torch_ref", "mlx": "mlx_port"}  # kind of side under test → its package


class Stored(Protocol):
    """A network's tensors under canonical names, in PyTorch's axis order: the parts of a checkpoint fit."""

    @property
    def config(self) -> Any: ...

    def names(self) -> list[str]: ...

    def read(self, name: str) -> np.ndarray: ...


@dataclass(frozen=True)
class Side:
    """One package in one float dtype. Outside its methods all arrays are NumPy's, with channels second."""

    kind: str  # "torch" is PyTorch in float32, "float64" PyTorch in float64, "mlx" MLX in float32

    @property
    def package(self) -> str:
        return SIDES.get(self.kind, SIDES["torch"])

    @property
    def dtype(self) -> Any:
        """The framework's own dtype of floating numbers."""
        framework = import_module("mlx.core" if self.kind == "mlx" else "torch")
        return framework.float64 if self.kind == "float64" else framework.float32

    def module(self, name: str) -> Any:
        """A module of the package by its path: "dia.slots"."""
        return import_module(f"{self.package}.{name}")

    def fastest(self, model: str, *networks: Any) -> dict[str, Any]:
        """The forms that `load` hands to `compose` of a model; MLX has one of each."""
        return {} if self.kind == "mlx" else self.module("loading").Parts.fastest(model, *networks)

    def array(self, x: np.ndarray) -> Any:
        """A copy with floating numbers in this side's dtype, integers as they are."""
        if self.kind == "mlx":
            import mlx.core as mx

            return mx.array(x.astype(np.float32) if x.dtype.kind == "f" else x)
        import torch

        return torch.tensor(np.ascontiguousarray(x), dtype=self.dtype if x.dtype.kind == "f" else None)

    def numpy(self, x: Any) -> np.ndarray:
        return np.array(x) if self.kind == "mlx" else x.detach().numpy().copy()

    def channels(self, x: np.ndarray) -> Any:
        """(B, C, T) into this side's own order."""
        return self.array(np.ascontiguousarray(x.swapaxes(1, 2)) if self.kind == "mlx" else x)

    def from_channels(self, x: Any) -> np.ndarray:
        """This side's own order back to (B, C, T)."""
        value = self.numpy(x)
        return value.swapaxes(1, 2) if self.kind == "mlx" else value

    def inference(self) -> Any:
        """The context in which networks run."""
        return nullcontext() if self.kind == "mlx" else import_module("torch").inference_mode()

    def network(self, name: str, weights: Stored, dtype: str | None = None) -> Any:
        """A network with these weights, ready to run.

        name: a kind of tts_core.models.
        dtype: of the tensors that do not always stay in float32; None takes this side's.
        """
        tensors = self.tensors(name, weights)
        if dtype is not None:
            half = getattr(import_module("mlx.core" if self.kind == "mlx" else "torch"), dtype)
            stays = models.network(name).stays_float32
            cast = "astype" if self.kind == "mlx" else "to"
            tensors = {key: x if stays(key) else getattr(x, cast)(half) for key, x in tensors.items()}
        build = models.network_class(self.package, name)
        if self.kind == "mlx":
            network = build(weights.config)
            network.load_weights(list(tensors.items()), strict=True)
            network.eval()
            return network
        with import_module("torch").device("meta"):
            network = build(weights.config)
        network.load_state_dict(tensors, strict=True, assign=True)
        return network.to("cpu").eval()

    def tensors(self, name: str, weights: Stored, prefix: str = "") -> dict[str, Any]:
        """Tensors of a network of kind `name` in this side's order of axes, by their names after a prefix."""
        shapes, found = models.network(name).parameter_shapes(weights.config), {}
        for key in weights.names():
            if key.startswith(prefix):
                axes = mlx_axes(shapes[key]) if self.kind == "mlx" else None
                value = weights.read(key)
                found[key.removeprefix(prefix)] = self.array(value.transpose(axes) if axes else value)
        return found


ORACLE, YARDSTICK, PORT = Side("float64"), Side("torch"), Side("mlx")
BY_PACKAGE = {"torch_ref": YARDSTICK, "mlx_port": PORT}


def assert_parity(what: str, run: Callable[[Side], np.ndarray]) -> None:
    """Require MLX to be as close to torch in float64 as torch's own rounding in float32 allows."""
    assert_within(run(PORT), run(YARDSTICK), run(ORACLE), what)
