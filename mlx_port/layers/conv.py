"""1-D convolutions over (B, T, C).

Weights are (out, k, in), for the transposed one too. MLX has no size limits to mind.
"""

from __future__ import annotations

from functools import reduce

import mlx.core as mx
from mlx import nn


class Conv1d(nn.Module):
    """Convolution with bias and symmetric zero padding. (B, T, C) → (B, T', C')."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        stride: int = 1,
        padding: int = 0,
        dilation: int = 1,
        groups: int = 1,
        bias: bool = True,
    ):
        super().__init__()
        self.stride, self.padding, self.dilation, self.groups = stride, padding, dilation, groups
        self.weight = mx.zeros((out_channels, kernel_size, in_channels // groups))
        if bias:
            self.bias = mx.zeros((out_channels,))

    def __call__(self, x: mx.array) -> mx.array:
        bias = self.get("bias")
        return conv1d(x, self.weight, bias, self.stride, self.padding, self.dilation, self.groups)


class ConvTranspose1d(nn.Module):
    """Transposed convolution with bias; `padding` outputs are cut at each end. (B, T, C) → (B, T', C')."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        stride: int = 1,
        padding: int = 0,
        bias: bool = True,
    ):
        super().__init__()
        self.stride, self.padding = stride, padding
        self.weight = mx.zeros((out_channels, kernel_size, in_channels))
        if bias:
            self.bias = mx.zeros((out_channels,))

    def __call__(self, x: mx.array) -> mx.array:
        return conv_transpose1d(x, self.weight, self.get("bias"), self.stride, self.padding)


def conv1d(
    x: mx.array,
    weight: mx.array,
    bias: mx.array | None,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    groups: int = 1,
) -> mx.array:
    """mx.conv1d with bias, if any; on the CPU one product a tap where the stride is 1, each added to the sum.

    MLX's CPU loops over dilated taps at 1 GFLOP/s, its matmul is BLAS; one channel a group needs no matmul.
    (B, T, C), (C', K, C / groups) → (B, T', C').
    """
    depthwise = groups == x.shape[-1] == weight.shape[0]
    if stride > 1 or mx.default_device() != mx.cpu or (groups > 1 and not depthwise):
        return _add(mx.conv1d(x, weight, stride, padding, dilation, groups), bias)
    kernel = weight.shape[1]
    x = mx.pad(x, [(0, 0), (padding, padding), (0, 0)])
    length = x.shape[1] - dilation * (kernel - 1)
    shifted = [x[:, k * dilation : k * dilation + length] for k in range(kernel)]
    if groups > 1:
        return _add(reduce(mx.add, [part * weight[:, k, 0] for k, part in enumerate(shifted)]), bias)
    total = shifted[0] @ weight[:, 0].T if bias is None else mx.addmm(bias, shifted[0], weight[:, 0].T)
    for k in range(1, kernel):
        total = mx.addmm(total, shifted[k], weight[:, k].T)
    return total


def conv_transpose1d(
    x: mx.array, weight: mx.array, bias: mx.array | None, stride: int = 1, padding: int = 0
) -> mx.array:
    """mx.conv_transpose1d with bias, if any; where the kernel is a multiple of the stride, one matmul and
    shifted sums.

    Each frame's outputs come from the matmul and its neighbors' tails are added: nothing is multiplied by
    the zeros that a strided transposed convolution puts between frames.
    (B, T, C), (C', K, C) → (B, T', C').
    """
    out, kernel, width = weight.shape
    if kernel % stride:
        return _add(mx.conv_transpose1d(x, weight, stride, padding), bias)
    batch, frames, _ = x.shape
    tails = kernel // stride
    taps = x @ weight.transpose(1, 0, 2).reshape(kernel * out, width).T  # (B, T, K·C')
    taps = taps.reshape(batch, frames, tails, stride * out)
    shifted = [mx.pad(taps[:, :, i], [(0, 0), (i, tails - 1 - i), (0, 0)]) for i in range(tails)]
    samples = reduce(mx.add, shifted).reshape(batch, (frames + tails - 1) * stride, out)
    return _add(samples[:, padding : samples.shape[1] - padding], bias)


def _add(x: mx.array, bias: mx.array | None) -> mx.array:
    return x if bias is None else x + bias
