"""Limits of convolution and padding."""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ref.limits.rule import Call, Rule, Where, torch_range

LONGEST = 65536  # 1 << 16, compared with every size, not only the channels
GEOMETRY = ("stride", "padding", "dilation", "output_padding")
TOO_LONG = "Output channels > 65536 not supported at the MPS device. "
CHECKED = (Where(macos=(None, "15.1")),)
LARGE_KERNEL = 256


def output_shape(call: Call) -> tuple[int, ...]:
    """Return the shape of aten.convolution's result."""
    x, weight = call["input"].shape, call["weight"].shape
    per_axis = zip(x[2:], weight[2:], *(call[name] for name in GEOMETRY), strict=False)
    if call["transposed"]:
        sizes = [(n - 1) * s - 2 * p + d * (k - 1) + o + 1 for n, k, s, p, d, o in per_axis]
        return (x[0], weight[1] * call["groups"], *sizes)
    return (x[0], weight[0], *((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d, _ in per_axis))


def _too_long(call: Call) -> bool:
    return not call["transposed"] and max(output_shape(call)) > LONGEST


def _gradient_too_long(call: Call) -> bool:
    return max(call["grad_output"].shape) > LONGEST


def _slices(x: Tensor) -> bool:
    """Return True if items of a batch are contiguous, but not the batch: chunk() over channels gives that."""
    return x.shape[0] > 1 and not x.is_contiguous() and x[0].is_contiguous()


def _unpacked_channels_last(x: Tensor) -> bool:
    """Return True for a slice of channels of a tensor with channels as its fastest axis."""
    fastest = x.dim() in (3, 4) and x.stride(1) == 1 and not x.is_contiguous()
    return fastest and not x.movedim(1, -1).is_contiguous()


def _large_kernel(call: Call) -> bool:
    x, weight = call["input"], call["weight"]
    plain = not call["transposed"] and weight.dim() < 5 and x.dtype == torch.float32
    return plain and x.shape[0] > 1 and max(weight.shape[2:]) >= LARGE_KERNEL


def _transposed_3d(call: Call) -> bool:
    half = call["input"].dtype.itemsize == 2
    return call["transposed"] and call["weight"].dim() == 5 and half


RULES = (
    Rule(
        id="conv-65536",
        ops=("convolution",),
        condition="any size of the output (batch, channels, height, width; length in 1-D) over 65,536",
        breaks=_too_long,
        where=CHECKED,
        effect="error",
        message=TOO_LONG,
        remedy="split the longest axis with the exact halo (time in 1-D), or the output channels",
        source=(
            "pytorch #129207, #152278, PR #140726, #142515; wheels 2.5.1 to 2.15.0 (2.15 has kernels for 1-D "
            "signals, which may not check it)"
        ),
        evidence="binary",
    ),
    Rule(
        id="conv-transpose-65536",
        ops=("convolution",),
        condition="transposed: any size of the input over 65,536 (its longer output is not checked)",
        breaks=lambda call: call["transposed"] and max(call["input"].shape) > LONGEST,
        where=CHECKED,
        effect="error",
        message=TOO_LONG,
        remedy="split the input frames and add the overlapping tails",
        source="mps_convolution_backward_input, same check; wheels 2.5.1 to 2.15.0",
        evidence="binary",
    ),
    Rule(
        id="conv-input-grad-65536",
        ops=("convolution_backward",),
        condition="gradient of the input: any size of the output's gradient over 65,536",
        breaks=lambda call: call["output_mask"][0] and not call["transposed"] and _gradient_too_long(call),
        where=CHECKED,
        effect="error",
        message=TOO_LONG,
        remedy="train on pieces of the signal",
        source="mps_convolution_backward_input; wheels 2.5.1 to 2.15.0",
        evidence="binary",
    ),
    Rule(
        id="conv-weight-grad-65536",
        ops=("convolution_backward",),
        condition="gradient of the weight: any size of the output's gradient over 65,536; nothing checks it",
        breaks=lambda call: call["output_mask"][1] and _gradient_too_long(call),
        where=(Where(macos=(None, "15.1")),),
        effect="silent",
        message="weight gradient of a convolution over 65536 is not checked and may be wrong",
        remedy="train on pieces of the signal",
        source="mps_convolution_backward_weights has no check in any wheel; that it is wrong is inferred",
        evidence="claimed",
    ),
    Rule(
        id="conv-large-kernel",
        ops=("convolution",),
        condition="one or two dimensions in float32, a batch over 1, a kernel of 256 or more along an axis",
        breaks=_large_kernel,
        effect="silent",
        message="a kernel of 256 or more overruns the threadgroup's memory: wrong from batch 2 on",
        remedy="sum over pieces of the kernel, or go item by item",
        source=(
            "pytorch #188335 (seen in grouped ones), PR #188359 (in any; larger batches lower the bound, how "
            "far was not seen; closed in mid 2026, the release was not seen)"
        ),
        evidence="thread",
    ),
    Rule(
        id="conv-chunk-batched",
        ops=("convolution",),
        condition="a batch over 1 whose items are slices of larger ones, as chunk() over channels gives",
        breaks=lambda call: _slices(call["input"]),
        where=(Where(macos=("26", None)),),
        effect="silent",
        message="items of the batch after the first are wrong",
        remedy="call .contiguous() on the input",
        source="pytorch #169342 (open; macOS 26.2, M5 Pro, torch 2.9 and 2.10; not reproduced by others)",
        evidence="claimed",
    ),
    Rule(
        id="conv-channels-last-slice",
        ops=("convolution",),
        condition="input or weight is a slice of channels of a channels-last tensor",
        breaks=lambda call: _unpacked_channels_last(call["input"]) or _unpacked_channels_last(call["weight"]),
        where=torch_range(None, "2.12"),
        effect="silent",
        message="the slice is read as if it were packed",
        remedy="call .contiguous() on both",
        source="pytorch #180984, PR #180992; ConvUtils.h in the wheels 2.12.0, 2.13.0, 2.15.0",
        evidence="binary",
    ),
    Rule(
        id="conv-weight-strided",
        ops=("convolution",),
        condition="a weight that is not contiguous",
        breaks=lambda call: not call["weight"].is_contiguous(),
        effect="silent",
        message="convolution reads a strided weight as if it were packed",
        remedy="call .contiguous() on the weight",
        source="pytorch #192212 (closed in August 2026; the release was not seen)",
        evidence="thread",
    ),
    Rule(
        id="conv3d-macos-26",
        ops=("convolution",),
        condition="three dimensions, an input that is not channels-last",
        breaks=lambda call: (
            not call["transposed"]
            and call["input"].dim() == 5
            and not call["input"].is_contiguous(memory_format=torch.channels_last_3d)
        ),
        where=(Where(macos=("26", "26.3")),),
        effect="silent",
        message="values unrelated to the right ones for most numbers of channels",
        remedy="update macOS to 26.3, or use channels_last_3d",
        source="pytorch #197114 (macOS 26.2; the system's matrix primitives, cured by 26.3 and 26.7)",
        evidence="thread",
    ),
    Rule(
        id="conv-transpose-output-padding",
        ops=("convolution",),
        condition="transposed: an output_padding not smaller than its stride or dilation",
        breaks=lambda call: (
            call["transposed"]
            and any(
                o >= max(s, d)
                for o, s, d in zip(call["output_padding"], call["stride"], call["dilation"], strict=False)
            )
        ),
        effect="silent",
        message="output padding must be smaller than either stride or dilation, and MPS does not check it",
        remedy="check it before the call",
        source="pytorch #169236 (open)",
        evidence="thread",
    ),
    Rule(
        id="conv-transpose-3d",
        ops=("convolution",),
        condition="transposed, three dimensions, float16 or bfloat16",
        breaks=_transposed_3d,
        effect="error",
        message="ConvTranspose 3D is not supported on MPS",
        remedy="use float32",
        source="wheels 2.5.1 to 2.15.0",
        evidence="binary",
    ),
    Rule(
        id="conv1d-backward-macos-14",
        ops=("convolution_backward",),
        condition="backward of a 1-D convolution",
        breaks=lambda call: call["weight"].dim() == 3,
        where=(Where(macos=("14.0", "14.2")),),
        effect="abort",
        message="MPSNDArrayConvolutionA14.mm: destination kernel width and filter kernel width mismatch",
        remedy="update macOS",
        source="pytorch #112949, #112998",
        evidence="thread",
    ),
    Rule(
        id="pad-over-3d",
        ops=("constant_pad_nd",),
        condition="constant padding of more than three axes",
        breaks=lambda call: (
            sum(a != 0 or b != 0 for a, b in zip(call["pad"][::2], call["pad"][1::2], strict=True)) > 3
        ),
        where=torch_range(None, "2.15"),
        effect="slow",
        message="MPS: constant padding of more than 3 dimensions uses a slow view path",
        remedy="reshape first",
        source="warning text in the wheels up to 2.14.1",
        evidence="binary",
    ),
)
