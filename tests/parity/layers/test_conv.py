"""Convolutions: MLX against PyTorch in the derived bound, with and without groups and biases."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import pytest
import torch.nn.functional as F

from mlx_port.layers import conv as layers
from tests.sides import PORT, Side, assert_parity

# kernel, stride, dilation, padding
CONVOLUTIONS = [(7, 1, 1, 3), (7, 1, 3, 9), (7, 1, 9, 27), (1, 1, 1, 0), (3, 1, 1, 1)]
CONVOLUTIONS += [(2 * stride, stride, 1, -(-stride // 2)) for stride in (2, 3, 5, 8)]
# kernel, stride, padding
TRANSPOSED = [(2 * stride, stride, -(-stride // 2)) for stride in (1, 2, 3, 5, 8)] + [(9, 3, 0), (7, 3, 2)]


def tensors(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    random = np.random.default_rng(4)
    return [random.normal(0, 1, shape).astype(np.float32) for shape in shapes]


def filled(side: Side, conv: Any, weight: np.ndarray, order: tuple[int, ...], *bias: np.ndarray) -> Any:
    """order: axes of the weight in MLX's layout."""
    if side is PORT:
        conv.weight = side.array(weight.transpose(order))
    else:
        conv.to(side.dtype).weight.data = side.array(weight)
    for each in bias:
        if side is PORT:
            conv.bias = side.array(each)
        else:
            conv.bias.data = side.array(each)
    return conv


@pytest.mark.parametrize("length", [1, 2, 31, 64])
@pytest.mark.parametrize(("kernel", "stride", "dilation", "padding"), CONVOLUTIONS)
def test_convolution(kernel: int, stride: int, dilation: int, padding: int, length: int) -> None:
    length = max(length, kernel - 2 * padding)
    x, weight, bias = tensors((2, 3, length), (5, 3, kernel), (5,))
    sizes = {"stride": stride, "dilation": dilation, "padding": padding}

    def run(side: Side) -> np.ndarray:
        conv = side.module("layers.conv").Conv1d(3, 5, kernel, **sizes)
        return side.from_channels(filled(side, conv, weight, (0, 2, 1), bias)(side.channels(x)))

    assert_parity(f"Conv1d {kernel} {sizes} of {length}", run)


@pytest.mark.parametrize("length", [1, 2, 31])
@pytest.mark.parametrize(("kernel", "stride", "padding"), TRANSPOSED)
def test_transposed_convolution(kernel: int, stride: int, padding: int, length: int) -> None:
    x, weight, bias = tensors((2, 3, length), (3, 5, kernel), (5,))
    made = stride * (length - 1) + kernel - 2 * padding

    def run(side: Side) -> np.ndarray:
        conv = side.module("layers.conv").ConvTranspose1d(3, 5, kernel, stride=stride, padding=padding)
        out = side.from_channels(filled(side, conv, weight, (1, 2, 0), bias)(side.channels(x)))
        assert out.shape[2] == made
        return out

    if made > 0:
        assert_parity(f"ConvTranspose1d {kernel}, {stride} of {length}", run)


@pytest.mark.parametrize("dilation", [1, 3, 9])
def test_native_convolution(dilation: int) -> None:
    """MLX's own convolution, used on a GPU, equals the shifted products used on a CPU."""
    x, weight = tensors((2, 3, 40), (5, 3, 7))

    def run(side: Side) -> np.ndarray:
        if side is PORT:
            out = mx.conv1d(side.channels(x), side.channels(weight), 1, 3 * dilation, dilation)
            return side.from_channels(out)
        return side.numpy(F.conv1d(side.array(x), side.array(weight), None, 1, 3 * dilation, dilation))

    assert_parity(f"mx.conv1d, dilation {dilation}", run)


@pytest.mark.parametrize(("groups", "width"), [(2, 6), (6, 6), (6, 12)])
@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (1, 3), (2, 1)])
def test_convolution_in_groups(groups: int, width: int, stride: int, dilation: int) -> None:
    """As many groups as channels, and fewer; one output per group, and several."""
    x, weight, bias = tensors((2, 6, 31), (width, 6 // groups, 7), (width,))

    def run(side: Side) -> np.ndarray:
        given, sizes = (
            (side.channels(x), side.channels(weight), side.array(bias)),
            (stride, 3, dilation, groups),
        )
        return side.from_channels((layers.conv1d if side is PORT else F.conv1d)(*given, *sizes))

    assert_parity(f"convolution in {groups} groups", run)


@pytest.mark.parametrize("stride", [1, 3, 4])
def test_convolutions_without_a_bias(stride: int) -> None:
    x, down, up = tensors((2, 6, 31), (8, 6, 7), (6, 8, 7))

    def run(side: Side, weight: np.ndarray, name: str, order: tuple[int, ...]) -> np.ndarray:
        if side is not PORT:
            by_torch = F.conv1d if name == "Conv1d" else F.conv_transpose1d
            return side.numpy(by_torch(side.array(x), side.array(weight), None, stride, 2))
        conv = getattr(layers, name)(6, 8, 7, stride, 2, bias=False)
        assert list(conv.parameters()) == ["weight"]
        return side.from_channels(filled(side, conv, weight, order)(side.channels(x)))

    assert_parity("down", lambda side: run(side, down, "Conv1d", (0, 2, 1)))
    assert_parity("up", lambda side: run(side, up, "ConvTranspose1d", (1, 2, 0)))
