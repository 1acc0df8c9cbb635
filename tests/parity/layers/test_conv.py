"""MLX's convolutions against torch's, in the derived bound."""

from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx
import numpy as np
import pytest
import torch
import torch.nn.functional as F

from mlx_port.layers.conv import conv1d, conv_transpose1d
from tests.tolerance import assert_within


def drawn(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    """Random float32 arrays."""
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def by_torch(function: Callable[..., torch.Tensor], arrays: list[np.ndarray], *args: int) -> list[np.ndarray]:
    """Results in float64 and float32. arrays: input, weight, bias."""
    return [
        function(*(torch.from_numpy(array).to(kind) for array in arrays), *args).numpy()
        for kind in (torch.float64, torch.float32)
    ]


def by_mlx(
    function: Callable[..., mx.array], arrays: list[np.ndarray], order: tuple[int, ...], *args: int
) -> np.ndarray:
    """Result on MLX. order: axes of the weight in MLX's layout."""
    x, weight, bias = arrays
    out = function(mx.array(x.transpose(0, 2, 1)), mx.array(weight.transpose(order)), mx.array(bias), *args)
    return np.array(out).transpose(0, 2, 1)


@pytest.mark.parametrize("length", [31, 64])
@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "dilation"), [(7, 1, 27, 9), (1, 1, 0, 1), (10, 5, 3, 1)]
)
def test_conv1d(length, kernel, stride, padding, dilation):
    arrays, args = drawn((2, 6, length), (8, 6, kernel), (8,)), (stride, padding, dilation)
    truth, reference = by_torch(F.conv1d, arrays, *args)
    assert_within(by_mlx(conv1d, arrays, (0, 2, 1), *args), reference, truth, "convolution")


@pytest.mark.parametrize("length", [1, 31])
@pytest.mark.parametrize(
    ("kernel", "stride", "padding"), [(10, 5, 3), (16, 8, 4), (4, 2, 1), (9, 3, 0), (7, 3, 2)]
)
def test_conv_transpose1d(length, kernel, stride, padding):
    arrays = drawn((2, 6, length), (6, 8, kernel), (8,))
    truth, reference = by_torch(F.conv_transpose1d, arrays, stride, padding)
    ours = by_mlx(conv_transpose1d, arrays, (1, 2, 0), stride, padding)
    assert_within(ours, reference, truth, "convolution")


@pytest.mark.parametrize(("groups", "width"), [(2, 6), (6, 6), (6, 12)])
@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (1, 3), (2, 1)])
def test_conv1d_in_groups(groups, width, stride, dilation):
    """As many groups as channels, and fewer; one output per group, and several."""
    arrays = drawn((2, 6, 31), (width, 6 // groups, 7), (width,))
    truth, reference = by_torch(F.conv1d, arrays, stride, 3, dilation, groups)
    ours = by_mlx(conv1d, arrays, (0, 2, 1), stride, 3, dilation, groups)
    assert_within(ours, reference, truth, "convolution")
