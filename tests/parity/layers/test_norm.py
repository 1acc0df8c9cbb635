"""Norms: MLX against PyTorch in the derived bound, at scales around each epsilon."""

from typing import Any

import mlx.core as mx
import numpy as np
import pytest
import torch

import mlx_port.layers.norm
import torch_ref.layers.norm
from tests.sides import PORT, Side, assert_parity


def normed(side: Side, name: str, sizes: tuple[Any, ...], x: np.ndarray, **weights: np.ndarray) -> Any:
    """(..., C) → same, by a layer with these weights."""
    norm = getattr(side.module("layers.norm"), name)(*sizes)
    if side is not PORT:
        norm.to(side.dtype)
    for key, value in weights.items():
        if side is PORT:
            setattr(norm, key, side.array(value))
        else:
            getattr(norm, key).data = side.array(value)
    return norm(side.channels(x) if name == "GroupNorm" else side.array(x))


@pytest.mark.parametrize(("name", "eps"), [("RMSNorm", 1e-5), ("LayerNorm", 4e-5)])
@pytest.mark.parametrize(
    "scale", [0.0, 1e-20, 1e-4, 3e-3, 6e-3, 1.0, 1e4], ids=str
)  # the roots of the epsilons
def test_norm(name: str, eps: float, scale: float) -> None:
    random = np.random.default_rng(1)
    x = ((random.normal(0, 1, (2, 5, 37)) + 3 * (name == "LayerNorm")) * scale).astype(np.float32)
    keys = ("weight", "bias") if name == "LayerNorm" else ("weight",)
    weights = {key: random.uniform(0.5, 1.5, 37).astype(np.float32) for key in keys}
    assert_parity(f"{name} at {scale}", lambda side: side.numpy(normed(side, name, (37, eps), x, **weights)))


def test_layer_norm_of_half_precision_is_rounded_once() -> None:
    """It computes in float32: the result is the rounded float32 norm of the same numbers."""
    x = (np.random.default_rng(2).normal(0, 1, (3, 37)) + 50).astype(np.float32)
    halves, ports = torch.from_numpy(x).bfloat16(), mx.array(x).astype(mx.bfloat16)
    norm, port = torch_ref.layers.norm.LayerNorm(37, 4e-5), mlx_port.layers.norm.LayerNorm(37, 4e-5)
    assert torch.equal(norm(halves), norm(halves.float()).bfloat16())
    assert norm(halves).dtype == torch.bfloat16
    assert mx.array_equal(port(ports), port(ports.astype(mx.float32)).astype(mx.bfloat16))
    assert port(ports).dtype == mx.bfloat16


@pytest.mark.parametrize(
    ("channels", "groups", "steps", "scale"),
    [(4, 4, 9, 1), (4, 4, 9, 1e-3), (12, 3, 128, 1), (6, 1, 257, 1), (8, 2, 40_000, 1)],
)
def test_group_norm(channels: int, groups: int, steps: int, scale: float) -> None:
    """Input with a mean far from zero, as after a bias, and three seconds long; the formula in float64."""
    random = np.random.default_rng(steps)
    x = (random.normal(5, 2, (2, channels, steps)) * scale).astype(np.float32)
    weight, bias = random.normal(1, 0.3, (2, channels)).astype(np.float32)
    wide = x.astype(np.float64).reshape(2, groups, -1)
    centred = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
    truth = centred.reshape(x.shape) * weight[:, None] + bias[:, None]

    def run(side: Side) -> np.ndarray:
        sizes = (groups, channels, 1e-5)
        made = side.from_channels(normed(side, "GroupNorm", sizes, x, weight=weight, bias=bias))
        if side.kind == "float64":
            np.testing.assert_allclose(made, truth, rtol=0, atol=1e-12)
        return made

    assert_parity(f"group norm of {steps} steps", run)
