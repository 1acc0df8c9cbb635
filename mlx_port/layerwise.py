"""Build, fill and run one layer of a network at a time, so that the whole is never in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import numpy as np
from mlx import nn
from mlx.utils import tree_map

from mlx_port.loading import DTYPES
from mlx_port.stored import Stored, cast_floats, dequantize_others, quantize_linears
from mlx_port.stored_published import Mapped
from tts_core.nn.layer_order import Stage, State
from tts_core.nn.layers import Arrays, Framework, Layers

MLX = Framework("mlx_port", mx, nn, mx.array, lambda x: x)
TIME_LAST = ("hidden", "latents", "encodings", "skip")  # (B, C, T) in a state, (B, T, C) inside


class Layerwise:
    """A network without weights; a stage has them only while it runs.

    layers: what runs a stage.
    dtype: of weights and activations: float32, bfloat16 or float16; tensors that stay float32 in every
    folder, and the arrays that `layers` keeps wide, are float32; codes of quantized weights are unchanged.
    """

    def __init__(self, layers: type[Layers], config: object, weights: Stored | Mapped, dtype: str):
        self.network = layers.network_class("mlx_port")(config)  # lazy: unfilled parts are never evaluated
        self.network.eval()
        if weights.quantization:
            quantize_linears(self.network, weights.quantization, set(weights.names()))
        self.layers = layers(self.network, MLX)
        self.weights, self.dtype, self.wide = weights, DTYPES[dtype], layers.wide_in(dtype)

    def run(self, stage: Stage, states: Sequence[State]) -> list[State]:
        """Run a stage on each state (tts_core.nn.layer_order). Returns float32."""
        fill(self.network, stage, self.weights, self.dtype)
        made = [to_host(self.layers.run(stage, from_host(state, self.dtype, self.wide))) for state in states]
        empty(self.network, stage)
        return made


def fill(network: nn.Module, stage: Stage, weights: Stored | Mapped, dtype: mx.Dtype) -> None:
    """Give the stage's modules, and no others, their tensors; names and shapes must fit exactly."""
    stored = weights.read(stage.tensors(weights.names()))
    if weights.quantization:
        stored = dequantize_others(network, stored, weights.quantization)
    for module in stage.modules:
        state = [
            (name.removeprefix(f"{module}."), cast_floats(name, value, dtype, weights.kind))
            for name, value in stored.items()
            if name.startswith(f"{module}.")
        ]
        _submodule(network, module).load_weights(state, strict=True)


def empty(network: nn.Module, stage: Stage) -> None:
    """Remove the stage's tensors again, replacing them by zeros that are never evaluated."""
    for module in stage.modules:
        owner = _submodule(network, module)
        owner.update(tree_map(lambda value: mx.zeros(value.shape, value.dtype), owner.parameters()))


def from_host(state: State, dtype: mx.Dtype, wide: Sequence[str]) -> dict[str, mx.array]:
    """Convert floating arrays to `dtype`, those in `wide` to float32; integers are unchanged."""
    return {
        name: mx.array(value.astype(np.float32)).astype(mx.float32 if name in wide else dtype)
        if value.dtype.kind == "f"
        else mx.array(value)
        for name, value in _turned(state).items()
    }


def to_host(made: Arrays) -> State:
    """Convert to NumPy arrays, floating ones to float32. Waits for the device."""
    return _turned(
        {
            name: np.array(value.astype(mx.float32) if mx.issubdtype(value.dtype, mx.floating) else value)
            for name, value in made.items()
        }
    )


def _turned(state: State) -> State:
    """Swap time and channels."""
    return {
        name: value.swapaxes(1, 2) if name.rstrip("0123456789") in TIME_LAST else value
        for name, value in state.items()
    }


def _submodule(network: nn.Module, path: str) -> nn.Module:
    module: Any = network
    for name in path.split("."):
        module = module[int(name)] if name.isdigit() else module[name]
    return module
