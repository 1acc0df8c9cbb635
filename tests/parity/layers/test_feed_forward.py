"""The gated feed-forward, both sides against its formula in float64."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
import torch

import mlx_port.layers.feed_forward as mlx_side
import torch_ref.layers.feed_forward as torch_side
from tests.tolerance import assert_within


@pytest.mark.parametrize(("width", "inner", "steps"), [(5, 7, 1), (64, 96, 9), (96, 33, 130)])
def test_feed_forward(width: int, inner: int, steps: int) -> None:
    """Gates on both sides of zero and far from it; unequal weights, so that gate and up cannot be swapped."""
    rng = np.random.default_rng(width)
    x = rng.normal(0, 3, (2, steps, width)).astype(np.float32)
    shapes = {"gate_proj": (inner, width), "up_proj": (inner, width), "down_proj": (width, inner)}
    weights = {
        name: rng.normal(0, shape[1] ** -0.5, shape).astype(np.float32) for name, shape in shapes.items()
    }

    def ours(dtype: torch.dtype) -> np.ndarray:
        layer = torch_side.FeedForward(width, inner).to(dtype)
        layer.load_state_dict({f"{name}.weight": torch.from_numpy(each) for name, each in weights.items()})
        with torch.no_grad():
            return layer(torch.from_numpy(x).to(dtype)).numpy()

    wide = {name: each.astype(np.float64) for name, each in weights.items()}
    gate, up = (x.astype(np.float64) @ wide[name].T for name in ("gate_proj", "up_proj"))
    truth = (gate / (1 + np.exp(-gate)) * up) @ wide["down_proj"].T
    np.testing.assert_allclose(ours(torch.float64), truth, rtol=0, atol=1e-12)
    port = mlx_side.FeedForward(width, inner)
    port.load_weights([(f"{name}.weight", mx.array(each)) for name, each in weights.items()])
    assert_within(np.array(port(mx.array(x))), ours(torch.float32), truth, f"feed-forward of {steps} steps")
