"""Limits of matrix products and F.linear."""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ref.limits.rule import Call, Rule, Where

FLAT = ("mm", "addmm")
BATCHED = ("bmm", "baddbmm")
OPERANDS = {
    "mm": ("self", "mat2"),
    "bmm": ("self", "mat2"),
    "addmm": ("mat1", "mat2"),
    "baddbmm": ("batch1", "batch2"),
}
HALF = (torch.float16, torch.bfloat16)
OLD_CHIPS = ("M1", "M2")


def _operands(call: Call) -> tuple[Tensor, Tensor]:
    left, right = OPERANDS[call.op]
    return call[left], call[right]


def _result(call: Call) -> int:
    """Count the elements of the product."""
    left, right = _operands(call)
    return left.numel() // max(left.shape[-1], 1) * right.shape[-1]


def _long_sum(call: Call) -> bool:
    left, right = _operands(call)
    return left.shape[-1] >= 32767 and min(left.shape[-2], right.shape[-1]) >= 16


def _large_matrix(call: Call) -> bool:
    left, right = _operands(call)
    return left.shape[-2] * right.shape[-1] > 2**32


RULES = (
    Rule(
        id="bmm-result-32-bit",
        ops=BATCHED,
        condition="a batched product of more than 2^32 elements",
        breaks=lambda call: _result(call) > 2**32,
        where=(Where(macos=(None, "15.0")),),
        effect="error",
        message="Tiling of batch matmul for larger than 2**32 entries only available from MacOS15 onwards",
        remedy="compute it in pieces",
        source="pytorch PR #133430; wheels 2.5.1 to 2.15.0",
        evidence="binary",
    ),
    Rule(
        id="matmul-matrix-32-bit",
        ops=FLAT + BATCHED,
        condition="a product with one matrix of more than 2^32 elements",
        breaks=_large_matrix,
        effect="error",
        message="Output dim sizes larger than 2**32 elements for matmul not supported on MPS device.",
        remedy="compute it in pieces",
        source="wheels 2.6.0 to 2.15.0",
        evidence="binary",
    ),
    Rule(
        id="bmm-tiled-strides",
        ops=BATCHED,
        condition="a batched product of more than 2^32 elements with an operand that is not contiguous",
        breaks=lambda call: _result(call) > 2**32 and not all(x.is_contiguous() for x in _operands(call)),
        effect="silent",
        message="the tiled product reads strided operands as if they were packed: every value is wrong",
        remedy="call .contiguous() on both, or compute it in pieces",
        source="pytorch #197636 (open)",
        evidence="thread",
    ),
    Rule(
        id="mm-long-sum",
        ops=FLAT,
        condition="a sum over 32,767 elements or more, both outer sizes 16 or more",
        breaks=_long_sum,
        where=(Where((None, "2.14"), chips=OLD_CHIPS),),
        effect="silent",
        message="the last tile of the sum reads past the operand",
        remedy="split the sum; PYTORCH_MPS_PREFER_METAL=1 cures two-dimensional products",
        source="pytorch #183535, #193487, #177116",
        evidence="thread",
    ),
    Rule(
        id="bmm-long-sum",
        ops=BATCHED,
        condition="a batched sum over 32,767 elements or more, both outer sizes 16 or more",
        breaks=_long_sum,
        where=(Where(chips=OLD_CHIPS),),
        effect="silent",
        message="the last tile of the sum reads past the operand",
        remedy="split the sum",
        source="pytorch #195163, PR #195012 (open; still in 2.14)",
        evidence="thread",
    ),
    Rule(
        id="linear-half-unstable",
        ops=("linear",),
        condition="float16 or bfloat16, more than two dimensions, no bias (some shapes, not known which)",
        breaks=lambda call: call["input"].dtype in HALF and call["input"].dim() > 2 and call["bias"] is None,
        where=(Where(chips=("M5",)),),
        effect="silent",
        message="two equal calls of linear differ",
        remedy="flatten the input to two dimensions, or give a bias of zeros",
        source="pytorch #180776 (macOS 26.4), PR #181504 (closed in April 2026; the release was not seen)",
        evidence="thread",
    ),
    Rule(
        id="linear-weight-view-m5",
        ops=("linear",),
        condition="a bfloat16 weight that is a transposed view",
        breaks=lambda call: call["weight"].dtype == torch.bfloat16 and not call["weight"].is_contiguous(),
        where=(Where(macos=("27", None), chips=("M5",)),),
        effect="abort",
        message="SIGABRT in linear with a transposed bfloat16 weight",
        remedy="keep weights contiguous",
        source="pytorch #197796",
        evidence="thread",
    ),
    Rule(
        id="linear-integer",
        ops=("linear", "addmm"),
        condition="integer input",
        breaks=lambda call: any(
            not x.dtype.is_floating_point and not x.dtype.is_complex for x in call.tensors()
        ),
        effect="error",
        message="MPS device does not support linear for non-float inputs",
        remedy="cast to a floating dtype",
        source="text in every wheel",
        evidence="binary",
    ),
)
