"""1-D convolutions over (B, C, T) that keep every size within the device's limit.

If a device has such a limit (torch_ref.limits: 65,536 in some versions of MPS), outputs are computed in
windows over time, and over output channels if a weight has more of them; otherwise in one native call.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torch_ref.limits import longest_convolution
from tts_core.nn import windows


class Conv1d(nn.Conv1d):
    """Convolution with bias and symmetric zero padding. (B, C, T) → (B, C', T')."""

    def forward(self, input: Tensor) -> Tensor:
        stride, padding, dilation = self.stride[0], int(self.padding[0]), self.dilation[0]
        return conv1d(input, self.weight, self.bias, stride, padding, dilation, self.groups)


class ConvTranspose1d(nn.ConvTranspose1d):
    """Transposed convolution with bias; `padding` outputs are cut at each end. (B, C, T) → (B, C', T')."""

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        stride, padding, dilation = self.stride[0], int(self.padding[0]), self.dilation[0]
        return conv_transpose1d(
            input, self.weight, self.bias, stride, padding, self.output_padding[0], self.groups, dilation
        )


def conv1d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    groups: int = 1,
    *,
    longest: int | None = None,
) -> Tensor:
    """torch.nn.functional.conv1d in calls whose batch, times and output channels are at most `longest`.

    (B, C, T), (C', C / groups, K) → (B, C', T').  longest: None uses the device's limit, if any.
    Raises ValueError if one output needs more inputs than `longest`.
    """
    x, weight = x.contiguous(), weight.contiguous()  # views of either give wrong results on some MPS
    longest = longest_convolution(x.device) if longest is None else longest
    kernel, out = weight.shape[2], weight.shape[0]
    layer = windows.Conv(kernel, stride, dilation, padding)
    length = layer.output_length(x.shape[2])
    if longest is None or max(x.shape[0], x.shape[2], length, out) <= longest:
        return F.conv1d(x, weight, bias, stride, padding, dilation, groups)

    def call(x: Tensor, weight: Tensor, bias: Tensor | None, groups: int = 1) -> Tensor:
        return conv1d(x, weight, bias, stride, padding, dilation, groups, longest=longest)

    if x.shape[0] > longest:
        return torch.cat([call(part, weight, bias, groups) for part in x.split(longest)])
    if out > longest and groups > 1:
        return torch.cat([call(*part) for part in _groups(x, weight, bias, groups, longest, 0)], dim=1)
    if out > longest:
        rows = range(0, out, longest)
        return torch.cat([call(x, weight[i : i + longest], _part(bias, i, longest)) for i in rows], dim=1)

    span = (longest - dilation * (kernel - 1) - 1) // stride + 1  # outputs of `longest` inputs
    if span < 1:
        raise ValueError(f"conv1d: kernel {kernel} with dilation {dilation} spans more than {longest} inputs")
    cuts = []
    for start in range(0, length, span):
        first, last = layer.input_span(start, min(start + span, length))
        inside = x[:, :, max(0, first) : max(0, last)]
        inside = F.pad(inside, (max(0, -first), last - max(0, first) - inside.shape[2]))
        cuts.append(F.conv1d(inside, weight, bias, stride, 0, dilation, groups))
    return torch.cat(cuts, dim=2)


def conv_transpose1d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int = 1,
    padding: int = 0,
    output_padding: int = 0,
    groups: int = 1,
    dilation: int = 1,
    *,
    longest: int | None = None,
) -> Tensor:
    """torch.nn.functional.conv_transpose1d in calls whose batch, times and channels are at most `longest`.

    (B, C, T), (C, C' / groups, K) → (B, C', T').  longest: None uses the device's limit, if any.
    Every output is computed in one call, from all inputs that reach it.
    Raises ValueError for an output_padding that is not below stride or dilation (MPS does not check it), and
    if one output needs more than `longest`.
    """
    if output_padding >= max(stride, dilation):
        raise ValueError(
            f"conv_transpose1d: output_padding {output_padding} must be below stride or dilation"
        )
    x, weight = x.contiguous(), weight.contiguous()
    longest = longest_convolution(x.device) if longest is None else longest
    channels, out = weight.shape[0], weight.shape[1] * groups
    reach = dilation * (weight.shape[2] - 1) + 1  # outputs that one input reaches
    layer = windows.ConvTranspose(reach, stride, padding, output_padding)
    length = layer.output_length(x.shape[2])
    if longest is None or max(*x.shape, length, out) <= longest:
        return F.conv_transpose1d(x, weight, bias, stride, padding, output_padding, groups, dilation)

    def call(x: Tensor, weight: Tensor, bias: Tensor | None, groups: int = 1) -> Tensor:
        return conv_transpose1d(
            x, weight, bias, stride, padding, output_padding, groups, dilation, longest=longest
        )

    if x.shape[0] > longest:
        return torch.cat([call(part, weight, bias, groups) for part in x.split(longest)])
    if max(channels, out) > longest and groups > 1:
        return torch.cat([call(*part) for part in _groups(x, weight, bias, groups, longest, 1)], dim=1)
    if out > longest:
        rows = range(0, out, longest)
        return torch.cat([call(x, weight[:, i : i + longest], _part(bias, i, longest)) for i in rows], dim=1)
    if channels > longest:
        parts = zip(x.split(longest, dim=1), weight.split(longest), strict=True)
        total = torch.stack([call(*part, None) for part in parts]).sum(dim=0)
        return total if bias is None else total + bias[:, None]

    span = longest - 2 * reach - 2 * stride  # outputs of a window: all outputs of its inputs fit too
    if span < 1:
        raise ValueError(f"conv_transpose1d: one input reaches {reach} outputs, too many for {longest}")
    cuts = []
    for start in range(0, length, span):
        stop = min(start + span, length)
        first, last = layer.input_span(start, stop)
        first, last = max(0, first), min(x.shape[2], last)
        cut = x.new_zeros(x.shape[0], out, 0)
        if first < last:
            whole = F.conv_transpose1d(x[:, :, first:last], weight, None, stride, 0, 0, groups, dilation)
            begin = start + padding - first * stride
            whole = F.pad(whole, (max(0, -begin), 0))
            cut = whole[:, :, max(0, begin) :][:, :, : stop - start]
        cuts.append(
            F.pad(cut, (0, stop - start - cut.shape[2]))
        )  # output_padding: outputs that no input reaches
    merged = torch.cat(cuts, dim=2)
    return merged if bias is None else merged + bias[:, None]


def _groups(
    x: Tensor, weight: Tensor, bias: Tensor | None, groups: int, longest: int, out_axis: int
) -> Iterator[tuple[Tensor, Tensor, Tensor | None, int]]:
    """Yield (input, weight, bias, groups) for as many whole groups as fit at a time; at least one."""
    into = x.shape[1] // groups
    out = weight.shape[1] if out_axis else weight.shape[0] // groups
    rows = weight.shape[0] // groups
    at_once = max(1, longest // max(into, out) if out_axis else longest // out)
    for i in range(0, groups, at_once):
        count = min(at_once, groups - i)
        channels = x[:, i * into : (i + count) * into]
        yield channels, weight[i * rows : (i + count) * rows], _part(bias, i * out, count * out), count


def _part(bias: Tensor | None, start: int, size: int) -> Tensor | None:
    return None if bias is None else bias[start : start + size]
