"""MLX's convolutions against torch's, in the derived bound."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
import torch
import torch.nn.functional as F

from mlx_port.layers.conv import conv1d, conv_transpose1d
from tests.tolerance import assert_within


def tensors(kind: torch.dtype, one: np.ndarray, other: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.from_numpy(one).to(kind), torch.from_numpy(other).to(kind)


@pytest.mark.parametrize("length", [31, 64])
@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "dilation"), [(7, 1, 27, 9), (1, 1, 0, 1), (10, 5, 3, 1)]
)
def test_conv1d(length, kernel, stride, padding, dilation):
    rng = np.random.default_rng(0)
    x, weight, bias = (
        rng.standard_normal(shape).astype(np.float32) for shape in ((2, 6, length), (8, 6, kernel), (8,))
    )
    truth, reference = (
        F.conv1d(
            *tensors(kind, x, weight), torch.from_numpy(bias).to(kind), stride, padding, dilation
        ).numpy()
        for kind in (torch.float64, torch.float32)
    )
    ours = conv1d(
        mx.array(x.transpose(0, 2, 1)),
        mx.array(weight.transpose(0, 2, 1)),
        mx.array(bias),
        stride,
        padding,
        dilation,
    )
    assert_within(np.array(ours).transpose(0, 2, 1), reference, truth, "convolution")


@pytest.mark.parametrize("length", [1, 31])
@pytest.mark.parametrize(
    ("kernel", "stride", "padding"), [(10, 5, 3), (16, 8, 4), (4, 2, 1), (9, 3, 0), (7, 3, 2)]
)
def test_conv_transpose1d(length, kernel, stride, padding):
    rng = np.random.default_rng(0)
    x, weight, bias = (
        rng.standard_normal(shape).astype(np.float32) for shape in ((2, 6, length), (6, 8, kernel), (8,))
    )
    truth, reference = (
        F.conv_transpose1d(
            *tensors(kind, x, weight), torch.from_numpy(bias).to(kind), stride, padding
        ).numpy()
        for kind in (torch.float64, torch.float32)
    )
    ours = conv_transpose1d(
        mx.array(x.transpose(0, 2, 1)), mx.array(weight.transpose(1, 2, 0)), mx.array(bias), stride, padding
    )
    assert_within(np.array(ours).transpose(0, 2, 1), reference, truth, "convolution")


@pytest.mark.parametrize(("groups", "width"), [(2, 6), (6, 6), (6, 12)])
@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (1, 3), (2, 1)])
def test_conv1d_in_groups(groups, width, stride, dilation):
    """As many groups as channels, and fewer; one output per group, and several."""
    rng = np.random.default_rng(0)
    x, weight, bias = (
        rng.standard_normal(shape).astype(np.float32)
        for shape in ((2, 6, 31), (width, 6 // groups, 7), (width,))
    )
    truth, reference = (
        F.conv1d(
            *tensors(kind, x, weight), torch.from_numpy(bias).to(kind), stride, 3, dilation, groups
        ).numpy()
        for kind in (torch.float64, torch.float32)
    )
    ours = conv1d(
        mx.array(x.transpose(0, 2, 1)),
        mx.array(weight.transpose(0, 2, 1)),
        mx.array(bias),
        stride,
        3,
        dilation,
        groups,
    )
    assert_within(np.array(ours).transpose(0, 2, 1), reference, truth, "convolution")
