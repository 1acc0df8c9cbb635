"""Build, fill and run one layer of a network at a time, so that the whole is never in memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from converters.published import ModelPart
from torch_ref.device import DTYPES
from torch_ref.limits.remedies import at_least_float32
from tts_core.nn.layer_order import Stage, State
from tts_core.nn.layers import Arrays, Framework, Layers

TORCH = Framework("torch_ref", torch, nn, torch.from_numpy, lambda x: x.transpose(1, 2))


class Layerwise:
    """A network without weights; a stage has them only while it runs.

    layers: what runs a stage.
    dtype: of weights and activations: float32, float64, bfloat16 or float16; tensors that stay float32 in
    every folder, and the arrays that `layers` keeps wide, are at least float32.
    """

    def __init__(self, layers: type[Layers], config: object, weights: ModelPart, dtype: str):
        with torch.device("meta"):
            self.network = layers.network_class("torch_ref")(config).eval()
        self.layers = layers(self.network, TORCH)
        self.weights, self.dtype, self.wide = weights, DTYPES[dtype], layers.wide_in(dtype)

    @torch.inference_mode()
    def run(self, stage: Stage, states: Sequence[State]) -> list[State]:
        """Run a stage on each state (tts_core.nn.layer_order). Returns float32, or float64 in float64."""
        fill(self.network, stage, self.weights, self.dtype)
        made = [to_host(self.layers.run(stage, from_host(state, self.dtype, self.wide))) for state in states]
        empty(self.network, stage)
        return made


def fill(network: nn.Module, stage: Stage, weights: ModelPart, dtype: torch.dtype) -> None:
    """Load the tensors of only the stage's modules; names and shapes must match exactly."""
    wide = torch.promote_types(dtype, torch.float32)
    for module in stage.modules:
        names = [name for name in stage.tensors(weights.names()) if name.startswith(f"{module}.")]
        state = {
            name.removeprefix(f"{module}."): _tensor(
                weights.read(name), wide if weights.stays_float32(name) else dtype
            )
            for name in names
        }
        network.get_submodule(module).load_state_dict(state, strict=True, assign=True)


def empty(network: nn.Module, stage: Stage) -> None:
    """Remove the stage's tensors again."""
    for module in stage.modules:
        network.get_submodule(module).to_empty(device="meta")


def from_host(state: State, dtype: torch.dtype, wide: Sequence[str]) -> dict[str, Tensor]:
    """Convert floating arrays to `dtype`, those in `wide` to at least float32; integers are unchanged."""
    own = torch.promote_types(dtype, torch.float32)
    return {
        name: _tensor(value, (own if name in wide else dtype) if value.dtype.kind == "f" else None)
        for name, value in state.items()
    }


def to_host(made: Arrays) -> State:
    """Convert to NumPy arrays, floating ones to at least float32."""
    return {
        name: (at_least_float32(value) if value.is_floating_point() else value).contiguous().numpy()
        for name, value in made.items()
    }


def _tensor(array: np.ndarray, dtype: torch.dtype | None) -> Tensor:
    return torch.from_numpy(array if array.flags.writeable else array.copy()).to(dtype)
