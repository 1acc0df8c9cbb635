"""Norm, rotary positions, cache and convolutions: MLX against PyTorch, in the derived bound."""

from types import ModuleType

import mlx.core as mx
import numpy as np
import pytest
import torch

import mlx_port.layers.cache
import mlx_port.layers.conv
import mlx_port.layers.norm
import mlx_port.layers.rope
import torch_ref.layers.cache
import torch_ref.layers.conv
import torch_ref.layers.norm
import torch_ref.layers.rope
from tests.sides import PORT, YARDSTICK, Side, assert_parity
from tests.tolerance import assert_within

CACHES = {"torch_ref": (YARDSTICK, torch_ref.layers.cache), "mlx_port": (PORT, mlx_port.layers.cache)}


@pytest.mark.parametrize("scale", [0.0, 1e-20, 1e-4, 3e-3, 1.0, 1e4], ids=str)  # eps 1e-5 = (3e-3)²
def test_norm(scale: float) -> None:
    random = np.random.default_rng(1)
    x, weight = random.normal(0, 1, (2, 5, 37)) * scale, random.uniform(0.5, 1.5, 37).astype(np.float32)
    x = x.astype(np.float32)

    def run(side: Side) -> np.ndarray:
        if side is PORT:
            norm = mlx_port.layers.norm.RMSNorm(37, 1e-5)
            norm.weight = mx.array(weight)
        else:
            norm = torch_ref.layers.norm.RMSNorm(37, 1e-5).to(side.dtype)
            norm.weight.data = side.array(weight)
        return side.numpy(norm(side.array(x)))

    assert_parity(f"RMSNorm at {scale}", run)


@pytest.mark.parametrize("scale", [0.0, 1e-20, 1e-4, 6e-3, 1.0, 1e4], ids=str)  # eps 4e-5 = (6e-3)²
def test_layer_norm(scale: float) -> None:
    random = np.random.default_rng(1)
    x = ((random.normal(0, 1, (2, 5, 37)) + 3) * scale).astype(np.float32)
    weight, bias = (random.uniform(0.5, 1.5, 37).astype(np.float32) for _ in "wb")

    def run(side: Side) -> np.ndarray:
        if side is PORT:
            norm = mlx_port.layers.norm.LayerNorm(37, 4e-5)
            norm.weight, norm.bias = mx.array(weight), mx.array(bias)
        else:
            norm = torch_ref.layers.norm.LayerNorm(37, 4e-5).to(side.dtype)
            norm.weight.data, norm.bias.data = side.array(weight), side.array(bias)
        return side.numpy(norm(side.array(x)))

    assert_parity(f"LayerNorm at {scale}", run)


def test_layer_norm_of_half_precision_is_rounded_once() -> None:
    """It computes in float32: the result is the rounded float32 norm of the same numbers."""
    x = (np.random.default_rng(2).normal(0, 1, (3, 37)) + 50).astype(np.float32)
    halves, ports = torch.from_numpy(x).bfloat16(), mx.array(x).astype(mx.bfloat16)
    norm, port = torch_ref.layers.norm.LayerNorm(37, 4e-5), mlx_port.layers.norm.LayerNorm(37, 4e-5)
    assert torch.equal(norm(halves), norm(halves.float()).bfloat16())
    assert norm(halves).dtype == torch.bfloat16
    assert mx.array_equal(port(ports), port(ports.astype(mx.float32)).astype(mx.bfloat16))
    assert port(ports).dtype == mx.bfloat16


@pytest.mark.parametrize(("start", "length"), [(0, 1), (0, 31), (1, 7), (2049, 1), (3055, 17)])
@pytest.mark.parametrize("head_dim", [2, 14, 128])
def test_rope(start: int, length: int, head_dim: int) -> None:
    """Against the formula in float64, late positions included, where a float32 angle has an error of 1e-4."""
    x = np.random.default_rng(2).normal(0, 1, (2, 3, length, head_dim)).astype(np.float32)
    half, positions = head_dim // 2, np.arange(start, start + length, dtype=np.float64)
    angles = positions[:, None] / 10000.0 ** (2 * np.arange(half) / head_dim)
    oracle = rotated(x.astype(np.float64), np.cos(angles), np.sin(angles))
    yardstick = rotated(x, np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32))

    for side, rope in ((PORT, mlx_port.layers.rope), (YARDSTICK, torch_ref.layers.rope)):
        positions = rope.RotaryPositions(3072, head_dim, 10000.0)
        turned = side.numpy(rope.rotate(side.array(x), positions(start, length)))
        assert_within(turned, yardstick, oracle, f"{side.kind} rope at {start}")


def rotated(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    a, b = np.split(x, 2, axis=-1)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


@pytest.mark.parametrize("name", CACHES)
@pytest.mark.parametrize("pieces", [(1,) * 5, (256, 1), (255, 1, 1), (200, 57, 255, 3), (1, 600, 1)], ids=str)
def test_cache_returns_every_row_so_far(name: str, pieces: tuple[int, ...]) -> None:
    side, layers = CACHES[name]
    random, cache = np.random.default_rng(3), layers.KeyValueCache()
    every = random.normal(0, 1, (2, 2, 3, sum(pieces), 5)).astype(np.float32)
    stop = 0
    for piece in pieces:
        start, stop = stop, stop + piece
        keys, values = cache.extend(*(side.array(rows[:, :, start:stop]) for rows in every))
        assert cache.length == stop
        np.testing.assert_array_equal(side.numpy(keys), every[0, :, :, :stop])
        np.testing.assert_array_equal(side.numpy(values), every[1, :, :, :stop])


CONVOLUTIONS = [(7, 1, 1, 3), (7, 1, 3, 9), (7, 1, 9, 27), (1, 1, 1, 0), (3, 1, 1, 1)]
STRIDED = [(2 * stride, stride, 1, -(-stride // 2)) for stride in (2, 3, 5, 8)]


@pytest.mark.parametrize("length", [1, 2, 31, 64])
@pytest.mark.parametrize(("kernel", "stride", "dilation", "padding"), CONVOLUTIONS + STRIDED)
def test_convolution(kernel: int, stride: int, dilation: int, padding: int, length: int) -> None:
    if length + 2 * padding < kernel:
        length = kernel - 2 * padding
    x, weight, bias = tensors((2, 3, length), (5, 3, kernel), 5)
    sizes = {"stride": stride, "dilation": dilation, "padding": padding}

    def run(side: Side) -> np.ndarray:
        conv = module(side, "Conv1d")(3, 5, kernel, **sizes)
        give(side, conv, weight, weight.transpose(0, 2, 1), bias)
        return side.from_channels(conv(side.channels(x)))

    assert_parity(f"Conv1d {kernel} {sizes} of {length}", run)


@pytest.mark.parametrize("dilation", [1, 3, 9])
def test_native_convolution(dilation: int) -> None:
    """MLX's own convolution, used on a GPU, equals the shifted products used on a CPU."""
    x, weight, _ = tensors((2, 3, 40), (5, 3, 7), 5)

    def run(side: Side) -> np.ndarray:
        if side is not PORT:
            return side.numpy(
                torch.nn.functional.conv1d(
                    side.array(x), side.array(weight), padding=3 * dilation, dilation=dilation
                )
            )
        out = mx.conv1d(side.channels(x), side.channels(weight), 1, 3 * dilation, dilation)
        return side.from_channels(out)

    assert_parity(f"mx.conv1d, dilation {dilation}", run)


@pytest.mark.parametrize("length", [1, 2, 31])
@pytest.mark.parametrize("stride", [1, 2, 3, 5, 8])
def test_transposed_convolution(stride: int, length: int) -> None:
    x, weight, bias = tensors((2, 3, length), (3, 5, 2 * stride), 5)
    padding = -(-stride // 2)

    def run(side: Side) -> np.ndarray:
        conv = module(side, "ConvTranspose1d")(3, 5, 2 * stride, stride=stride, padding=padding)
        give(side, conv, weight, weight.transpose(1, 2, 0), bias)
        out = side.from_channels(conv(side.channels(x)))
        assert out.shape[2] == stride * (length + 1) - 2 * padding
        return out

    if stride * (length + 1) - 2 * padding > 0:
        assert_parity(f"ConvTranspose1d {stride} of {length}", run)


def tensors(*shapes: tuple[int, ...] | int) -> list[np.ndarray]:
    random = np.random.default_rng(4)
    return [random.normal(0, 1, shape).astype(np.float32) for shape in shapes]


def module(side: Side, name: str) -> type:
    layers: ModuleType = mlx_port.layers.conv if side is PORT else torch_ref.layers.conv
    return getattr(layers, name)


def give(side: Side, conv, weight: np.ndarray, mlx_weight: np.ndarray, bias: np.ndarray) -> None:
    if side is PORT:
        conv.weight, conv.bias = mx.array(mlx_weight), mx.array(bias)
    else:
        conv.to(side.dtype)
        conv.weight.data, conv.bias.data = side.array(weight), side.array(bias)
