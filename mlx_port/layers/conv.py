"""1-D convolutions over (B, T, C). Weights are (out, k, in), for the transposed one too."""

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
        kernel: int,
        *,
        stride: int = 1,
        padding: int = 0,
        dilation: int = 1,
    ):
        super().__init__()
        self.stride, self.padding, self.dilation = stride, padding, dilation
        self.weight = mx.zeros((out_channels, kernel, in_channels))
        self.bias = mx.zeros((out_channels,))

    def __call__(self, x: mx.array) -> mx.array:
        if self.stride == 1 and mx.default_device() == mx.cpu:
            return shifted_matmuls(x, self.weight, self.padding, self.dilation) + self.bias
        return mx.conv1d(x, self.weight, self.stride, self.padding, self.dilation) + self.bias


class ConvTranspose1d(nn.Module):
    """Transposed convolution with bias; `padding` outputs are cut at each end. (B, T, C) → (B, T', C').

    The kernel is a multiple of the stride: each frame's outputs come from one matmul and its neighbours'
    tails are added, which wastes nothing on any backend.
    """

    def __init__(self, in_channels: int, out_channels: int, kernel: int, *, stride: int, padding: int = 0):
        super().__init__()
        if kernel % stride:
            raise ValueError(f"transposed convolution: kernel {kernel} is not a multiple of stride {stride}")
        self.stride, self.padding = stride, padding
        self.weight = mx.zeros((out_channels, kernel, in_channels))
        self.bias = mx.zeros((out_channels,))

    def __call__(self, x: mx.array) -> mx.array:
        batch, frames, width = x.shape
        out, kernel, _ = self.weight.shape
        taps = x @ self.weight.transpose(1, 0, 2).reshape(kernel * out, width).T  # (B, T, K·C')
        tails = kernel // self.stride
        taps = taps.reshape(batch, frames, tails, self.stride * out)
        shifted = [mx.pad(taps[:, :, i], [(0, 0), (i, tails - 1 - i), (0, 0)]) for i in range(tails)]
        added = reduce(mx.add, shifted)  # (B, T + tails - 1, stride·C')
        samples = added.reshape(batch, (frames + tails - 1) * self.stride, out)
        return samples[:, self.padding : samples.shape[1] - self.padding] + self.bias


def shifted_matmuls(x: mx.array, weight: mx.array, padding: int, dilation: int) -> mx.array:
    """A stride-1 convolution as one matmul a tap.

    MLX's CPU loops over dilated taps at 1 GFLOP/s, its matmul is BLAS.
    """
    kernel = weight.shape[1]
    x = mx.pad(x, [(0, 0), (padding, padding), (0, 0)])
    length = x.shape[1] - dilation * (kernel - 1)
    taps = [x[:, k * dilation : k * dilation + length] @ weight[:, k].T for k in range(kernel)]
    return reduce(mx.add, taps)
