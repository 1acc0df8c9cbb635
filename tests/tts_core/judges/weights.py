"""Random weights in the shapes of the published judges, saved as they are published."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import torch

from tts_core.judges.distillmos import LAYERS

CHANNELS = (2, 64, 64, 128, 256, 256, 256)


def distillmos(path: Path, seed: int = 0) -> dict[str, torch.Tensor]:
    shapes: dict[str, tuple[int, ...]] = {}

    def linear(name: str, outputs: int, inputs: int) -> None:
        shapes[f"{name}.weight"], shapes[f"{name}.bias"] = (outputs, inputs), (outputs,)

    def norm(name: str, width: int, *statistics: str) -> None:
        shapes.update({f"{name}.{kind}": (width,) for kind in ("weight", "bias", *statistics)})

    for place, (inputs, outputs) in enumerate(pairwise(CHANNELS)):
        shapes[f"cnn.cnn.{2 * place}.weight"] = (outputs, inputs, 3, 3)
        shapes[f"cnn.cnn.{2 * place}.bias"] = (outputs,)
    head = "transformer_pool_attn"
    for name, width in (("norm_input", 1024), ("transformer.norm", 1024), ("norm_trans", 200)):
        norm(f"{head}.{name}", width, "running_mean", "running_var")
    shapes[f"{head}.transformer.position_encoding.pe"] = (1, 384, 200)
    linear(f"{head}.transformer.linear_proj", 200, 1024)
    for layer in range(LAYERS):
        name = f"{head}.transformer.transformer_encoder.layers.{layer}"
        shapes[f"{name}.self_attn.in_proj_weight"] = (600, 200)
        shapes[f"{name}.self_attn.in_proj_bias"] = (600,)
        linear(f"{name}.self_attn.out_proj", 200, 200)
        linear(f"{name}.linear1", 400, 200)
        linear(f"{name}.linear2", 200, 400)
        norm(f"{name}.norm1", 200)
        norm(f"{name}.norm2", 200)
    for name, outputs, inputs in (("linear1", 400, 200), ("linear2", 1, 400), ("linear3", 1, 200)):
        linear(f"{head}.pool.{name}", outputs, inputs)
    weights = drawn(shapes, seed)
    torch.save({"model": weights, "step": 1}, path)
    return weights


def voice_encoder(path: Path, seed: int = 0) -> torch.nn.LSTM:
    """Save an LSTM and a projection in the format before zip files; return the LSTM."""
    shapes: dict[str, tuple[int, ...]] = {"linear.weight": (256, 256), "linear.bias": (256,)}
    for layer in range(3):
        shapes[f"lstm.weight_ih_l{layer}"] = (1024, 256 if layer else 40)
        shapes[f"lstm.weight_hh_l{layer}"] = (1024, 256)
        shapes[f"lstm.bias_ih_l{layer}"] = shapes[f"lstm.bias_hh_l{layer}"] = (1024,)
    weights = drawn(shapes, seed)
    torch.save({"step": 1, "model_state": weights}, path, _use_new_zipfile_serialization=False)
    lstm = torch.nn.LSTM(40, 256, 3, batch_first=True).double()
    lstm.load_state_dict({k.removeprefix("lstm."): v for k, v in weights.items() if k.startswith("lstm.")})
    return lstm


def drawn(shapes: dict[str, tuple[int, ...]], seed: int) -> dict[str, torch.Tensor]:
    rng = np.random.default_rng(seed)
    weights = {}
    for name, shape in shapes.items():
        numbers = rng.normal(size=shape) / np.sqrt(np.prod(shape[1:]) if len(shape) > 1 else 4)
        weights[name] = torch.from_numpy(np.abs(numbers) + 0.5 if "running_var" in name else numbers).float()
    return weights
