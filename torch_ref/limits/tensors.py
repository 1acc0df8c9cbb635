"""Limits of dtypes, of tensor sizes, and of layers with state."""

from __future__ import annotations

import torch

from torch_ref.limits.rule import MISSING, NO_DTYPE, Call, Rule, Where, torch_range

FLOAT8 = tuple(
    getattr(torch, name)
    for name in ("float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu")
    if hasattr(torch, name)
)
LINEAR_ALGEBRA = (  # decomposition, its operators, first release with a kernel
    ("qr", ("linalg_qr",), "2.12"),
    ("svd", ("_linalg_svd",), "2.14"),
    ("eigh", ("_linalg_eigh",), "2.14"),
)


def _largest(call: Call) -> int:
    return max(call["x"].shape, default=0)


RULES = (
    Rule(
        id="float64",
        ops=("tensor",),
        condition="a float64 tensor",
        breaks=lambda call: call["x"].dtype == torch.float64,
        effect="error",
        message=(
            "Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64. "
            "Please use float32 instead."
        ),
        remedy="compute tables in float64 on the host, then cast",
        source="text in every wheel",
        evidence="binary",
    ),
    Rule(
        id="float8",
        ops=("tensor",),
        condition="a float8 tensor",
        breaks=lambda call: call["x"].dtype in FLOAT8,
        where=torch_range(None, "2.15"),
        effect="error",
        message=NO_DTYPE.format("Float8_e4m3fn"),
        remedy="dequantize on the host",
        source="text in the wheels up to 2.14.1",
        evidence="binary",
    ),
    Rule(
        id="dimension-31-bit",
        ops=("tensor",),
        condition="a dimension over 2^31 - 1",
        breaks=lambda call: _largest(call) > 2**31 - 1,
        effect="error",
        message="MPSGraph does not support tensor dims larger than INT_MAX",
        remedy="split the tensor",
        source="text in the wheels from 2.9",
        evidence="binary",
    ),
    Rule(
        id="tensor-31-bit",
        ops=("tensor",),
        condition="more than 2^31 - 1 elements",
        breaks=lambda call: call["x"].numel() > 2**31 - 1,
        where=torch_range("2.15"),
        effect="error",
        message="MPS does not support tensors that require 64-bit indexing",
        remedy="split the tensor",
        source="text in the wheel 2.15.0",
        evidence="binary",
    ),
    Rule(
        id="rank-16",
        ops=("tensor",),
        condition="more than 16 dimensions",
        breaks=lambda call: call["x"].dim() > 16,
        effect="error",
        message="MPS supports tensors with dimensions <= 16, but got",
        remedy="flatten dimensions",
        source="text in the wheels",
        evidence="binary",
    ),
    Rule(
        id="uint8-sum",
        ops=("sum",),
        condition="a uint8 sum into uint8",
        breaks=lambda call: call["self"].dtype == torch.uint8 and call.values.get("dtype") == torch.uint8,
        effect="silent",
        message="the sum stops at 255 instead of wrapping",
        remedy="sum in int32",
        source="pytorch #179415",
        evidence="thread",
    ),
    Rule(
        id="lstm-leak",
        ops=("lstm",),
        where=(Where(macos=("15.0", None)),),
        effect="leak",
        message="each call of the LSTM leaks memory",
        remedy="unroll its cells: torch_ref.layers.lstm",
        source="pytorch #145374 (open)",
        evidence="thread",
    ),
    Rule(
        id="lstm-projections",
        ops=("lstm",),
        condition="an LSTM with projections (proj_size)",
        breaks=lambda call: bool(call["projections"]),
        effect="error",
        message="LSTM with projections is not currently supported with MPS.",
        remedy="unroll its cells",
        source="text in every wheel",
        evidence="binary",
    ),
    Rule(
        id="layer-norm-backward",
        ops=("native_layer_norm_backward",),
        condition="gradients of weight or bias without that of the input",
        breaks=lambda call: not call["output_mask"][0] and any(call["output_mask"]),
        effect="silent",
        message="the gradients of weight and bias are wrong",
        remedy="let the input require a gradient",
        source="pytorch #183825",
        evidence="thread",
    ),
    *(
        Rule(
            id=f"missing-{name}",
            ops=ops,
            where=torch_range(None, first),
            effect="error",
            message=MISSING.format(ops[0]),
            remedy="compute it on the host",
            source=f"wheels: kernel from {first}",
            evidence="binary",
        )
        for name, ops, first in LINEAR_ALGEBRA
    ),
    Rule(
        id="cuda-bfloat16-emulated",
        ops=("tensor",),
        condition="a bfloat16 tensor before compute capability 8.0",
        breaks=lambda call: (
            call["x"].dtype == torch.bfloat16
            and call.backend.chip is not None
            and tuple(map(int, call.backend.chip.split("."))) < (8, 0)
        ),
        effect="slow",
        message="bfloat16 is emulated, though torch.cuda.is_bf16_supported() is True",
        remedy="use float16; ask is_bf16_supported(including_emulation=False)",
        source="torch 2.13's signature (run); what a T4 answers is one report's word",
        evidence="claimed",
        device="cuda",
    ),
)
