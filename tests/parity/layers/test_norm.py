"""Group norms and convolutions without a bias, both sides against torch in float64."""

import mlx.core as mx
import numpy as np
import pytest
import torch
import torch.nn.functional as F

import mlx_port.layers.conv as mlx_conv
import mlx_port.layers.norm as mlx_norm
import torch_ref.layers.norm as torch_norm
from tests.tolerance import assert_within


@pytest.mark.parametrize(
    ("channels", "groups", "steps"), [(4, 4, 9), (12, 3, 128), (6, 1, 257), (8, 2, 40_000)]
)
def test_group_norm(channels, groups, steps):
    """Input with a mean far from zero, as after a bias, and three seconds long."""
    rng = np.random.default_rng(steps)
    x = rng.normal(5, 2, (2, channels, steps)).astype(np.float32)
    weight, bias = rng.normal(1, 0.3, (2, channels)).astype(np.float32)

    def ours(dtype):
        norm = torch_norm.GroupNorm(groups, channels, 1e-5).to(dtype)
        norm.weight.data, norm.bias.data = (torch.from_numpy(each).to(dtype) for each in (weight, bias))
        return norm(torch.from_numpy(x).to(dtype)).detach().numpy()

    wide = torch.from_numpy(x).double().reshape(2, groups, -1)
    centred = (wide - wide.mean(-1, keepdim=True)) / (wide.var(-1, correction=0, keepdim=True) + 1e-5).sqrt()
    truth = (
        centred.reshape(x.shape) * torch.from_numpy(weight)[:, None] + torch.from_numpy(bias)[:, None]
    ).numpy()
    np.testing.assert_allclose(ours(torch.float64), truth, rtol=0, atol=1e-12)
    norm = mlx_norm.GroupNorm(groups, channels, 1e-5)
    norm.weight, norm.bias = mx.array(weight), mx.array(bias)
    port = np.array(norm(mx.array(x.transpose(0, 2, 1)))).transpose(0, 2, 1)
    assert_within(port, ours(torch.float32), truth, f"group norm of {steps} steps")


@pytest.mark.parametrize("stride", [1, 3, 4])
def test_convolutions_without_a_bias(stride):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 6, 31)).astype(np.float32)
    down, up = (rng.standard_normal(shape).astype(np.float32) for shape in ((8, 6, 7), (6, 8, 7)))
    lower = mlx_conv.Conv1d(6, 8, 7, stride, 2, bias=False)
    higher = mlx_conv.ConvTranspose1d(6, 8, 7, stride, 2, bias=False)
    assert list(lower.parameters()) == list(higher.parameters()) == ["weight"]
    lower.weight, higher.weight = mx.array(down.transpose(0, 2, 1)), mx.array(up.transpose(1, 2, 0))

    def run(dtype):
        made = [torch.from_numpy(each).to(dtype) for each in (x, down, up)]
        return F.conv1d(made[0], made[1], None, stride, 2).numpy(), F.conv_transpose1d(
            made[0], made[2], None, stride, 2
        ).numpy()

    for layer, truth, known in zip((lower, higher), run(torch.float64), run(torch.float32), strict=True):
        own = np.array(layer(mx.array(x.transpose(0, 2, 1)))).transpose(0, 2, 1)
        assert_within(own, known, truth, f"{layer}, stride {stride}")
