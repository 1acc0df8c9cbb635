"""Limits of convolution and padding."""

from __future__ import annotations

import math

from torch_ref.limits.rule import EVERYWHERE, MISSING, Call, Rule, Where, always, torch_range

LONGEST = 65536  # 1 << 16, compared with every size, not only the channels
GEOMETRY = ("stride", "padding", "dilation", "output_padding")
TOO_LONG = "Output channels > 65536 not supported at the MPS device. "
CHECKED = (Where(("2.5", "2.6")), Where(("2.6", None), (None, "15.1")))


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


def _channels_last(call: Call) -> bool:
    for x in (call["input"], call["weight"]):
        if x.dim() > 2 and x.shape[1] > 1 and math.prod(x.shape[2:]) > 1 and x.stride(1) == 1:
            return True
    return False


def _transposed_3d(call: Call) -> bool:
    half = call["input"].dtype.itemsize == 2
    return call["transposed"] and call["weight"].dim() == 5 and (half or call.backend.torch_version < (2, 8))


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
        source="pytorch #129207, PR #129484, PR #140726, #142515; wheels 2.5.1 to 2.15.0",
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
        id="conv-channels-silent",
        ops=("convolution",),
        condition="more than 65,536 output channels",
        breaks=lambda call: not call["transposed"] and call["weight"].shape[0] > LONGEST,
        where=torch_range(None, "2.5"),
        effect="silent",
        message="convolution over 65536 output channels gives wrong numbers",
        remedy="split the output channels",
        source="pytorch #129207",
        evidence="thread",
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
        id="conv-channels-last",
        ops=("convolution",),
        condition="input or weight with channels as its fastest axis (also a transposed 1-D signal)",
        breaks=_channels_last,
        where=torch_range(None, "2.9"),
        effect="silent",
        message="wrong results, or `MLIR pass manager failed`, for channels-last convolution",
        remedy="call .contiguous() on both first: one copy",
        source="pytorch PR #140902, PR #143196 (backward, 2.6), PR #162776 (2.9)",
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
        where=EVERYWHERE,
        effect="silent",
        message="output padding must be smaller than either stride or dilation, and MPS does not check it",
        remedy="check it before the call",
        source="pytorch #169236 (open)",
        evidence="thread",
    ),
    Rule(
        id="conv-transpose-3d",
        ops=("convolution",),
        condition="transposed, three dimensions: every dtype before torch 2.8, float16 and bfloat16 since",
        breaks=_transposed_3d,
        where=EVERYWHERE,
        effect="error",
        message="ConvTranspose 3D is not supported on MPS",
        remedy="torch 2.8 and float32",
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
    Rule(
        id="weight-norm",
        ops=("_weight_norm_interface",),
        condition="every call",
        breaks=always,
        where=torch_range(None, "2.2"),
        effect="fallback",
        message=MISSING.format("_weight_norm_interface"),
        remedy="fold g v / |v| into the weight when it is loaded",
        source="native_functions.yaml of the wheels: kernel from 2.2",
        evidence="binary",
    ),
)
