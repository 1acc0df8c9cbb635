"""Convolutions of streams on CUDA, without padding: the inputs of the calls before stand in its place."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class CausalConv(NamedTuple):
    """A causal convolution over (R, C, 1, n + T) without padding and bias, with the s outputs of a step."""

    weight: Tensor  # (s·C', C, 1, k)
    bias: Tensor | None
    stride: int
    dilation: int
    layout: torch.memory_format

    @property
    def count(self) -> int:
        """Inputs of the call before that it takes."""
        return (self.weight.shape[3] - 1) * self.dilation

    def inputs(self, rows: int, length: int) -> Tensor:
        """Make place for its inputs, (R, n + T, C)."""
        shape = rows, self.weight.shape[1], 1, self.count + length
        made = torch.empty(
            shape, dtype=self.weight.dtype, device=self.weight.device, memory_format=self.layout
        )
        return made[:, :, 0].transpose(1, 2)

    def __call__(self, held: Tensor) -> Tensor:
        """(R, n + T, C) → (R, T, s, C')."""
        y = F.conv2d(held.transpose(1, 2)[:, :, None], self.weight, None, dilation=(1, self.dilation))
        return y[:, :, 0].unflatten(1, (self.stride, -1)).permute(0, 3, 1, 2)


def laid_out(
    layer: nn.Conv1d | nn.ConvTranspose1d, dtype: torch.dtype, layout: torch.memory_format
) -> CausalConv:
    """Lay out the weights of a convolution, also of a transposed one."""
    weight, stride = layer.weight.detach(), 1
    if isinstance(layer, nn.ConvTranspose1d):
        stride = layer.stride[0]
        taps = -(-weight.shape[2] // stride)
        weight = F.pad(weight, (0, taps * stride - weight.shape[2])).unflatten(2, (taps, stride)).flip(2)
        weight = weight.permute(3, 1, 0, 2).flatten(0, 1)  # (C, C', k, s) → (s·C', C, k)
    weight = weight[:, :, None].to(dtype).contiguous(memory_format=layout)
    bias, dilation = layer.bias, layer.dilation[0]
    return CausalConv(weight, None if bias is None else bias.detach(), stride, dilation, layout)
