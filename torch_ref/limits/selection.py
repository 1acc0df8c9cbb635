"""Limits of sampling, scans, sorting and indexing."""

from __future__ import annotations

import torch

from torch_ref.limits.rule import MISSING, Call, Rule, Where, torch_range

KERNELS = (  # operator, first release with a kernel, remedy; from native_functions.yaml of the wheels
    ("kthvalue", "2.12", "topk"),
    ("logcumsumexp", "2.12", "compute it on the host"),
)


def _dim(call: Call) -> int:
    dim = call["dim"]
    return dim % max(call["self"].dim(), 1)


def _padding_leaks(call: Call) -> bool:
    x = call["self"]
    if x.dtype == torch.bool:
        return True
    if call.history is None or x.device.type == "meta":
        return False
    worst = torch.isnan(x) if x.dtype.is_floating_point else x == torch.iinfo(x.dtype).max
    return bool(worst.any())


def _wide_unique(call: Call) -> bool:
    x = call["self"]
    if x.dtype != torch.int64 or not call["return_inverse"]:
        return False
    return call.history is None or (x.device.type != "meta" and bool((x.abs() > 2**24).any()))


RULES = (
    Rule(
        id="multinomial-domain",
        ops=("multinomial",),
        effect="silent",
        message="multinomial may return an index outside its domain",
        remedy="draw on the host: argmax of log p plus Gumbel noise (torch_ref.sampling)",
        source="pytorch #136623 (open)",
        evidence="thread",
    ),
    Rule(
        id="argmax-macos-27",
        ops=("argmax", "argmin"),
        where=(Where((None, "2.13"), ("27", None)),),
        effect="silent",
        message="argmax is wrong",
        remedy="torch 2.13, or the host",
        source="pytorch PR #188160",
        evidence="thread",
    ),
    Rule(
        id="sort-int64",
        ops=("sort", "argsort"),
        condition="int64 with more than 256 elements along the axis",
        breaks=lambda call: call["self"].dtype == torch.int64 and call["self"].shape[_dim(call)] > 256,
        where=(Where((None, "2.13"), ("15.4", None)),),
        effect="silent",
        message="int64 values are out of order after element 256",
        remedy="sort int32 or float32, or on the host",
        source="pytorch #155560; Metal sort from 2.12 or 2.13: PR #180714",
        evidence="thread",
    ),
    Rule(
        id="sort-first-axis",
        ops=("sort", "argsort"),
        condition="the first of several axes, 65,536 elements or more ('large'; the exact size is not known)",
        breaks=lambda call: call["self"].dim() > 1 and _dim(call) == 0 and call["self"].numel() >= 65536,
        where=torch_range(None, "2.13"),
        effect="silent",
        message="sorting a large tensor along its first axis is wrong",
        remedy="sort along the last axis, or on the host",
        source="pytorch #183885 (closed in 2026; the release was not seen)",
        evidence="thread",
    ),
    Rule(
        id="sort-padding",
        ops=("sort", "argsort"),
        condition="values that equal the padding: NaN, the largest integer, True",
        breaks=_padding_leaks,
        where=torch_range("2.12"),
        effect="silent",
        message="indices of the padding leak into the result",
        remedy="sort on the host",
        source="pytorch #184620",
        evidence="thread",
    ),
    *(
        Rule(
            id=f"missing-{name}",
            ops=(name,),
            where=torch_range(None, first),
            effect="error",
            message=MISSING.format(name),
            remedy=remedy,
            source=f"native_functions.yaml of the wheels: kernel from {first}",
            evidence="binary",
        )
        for name, first, remedy in KERNELS
    ),
    Rule(
        id="gather-31-bit",
        ops=("index_select", "embedding"),
        condition="a source of more than 2^31 elements",
        breaks=lambda call: next(call.tensors()).numel() > 2**31,
        where=torch_range(None, "2.14"),
        effect="silent",
        message="rows past 2^31 elements are zero",
        remedy="split the table",
        source="pytorch #188756, PR #187109 (2.14; whether 2.13 has it was not seen)",
        evidence="thread",
    ),
    Rule(
        id="scatter-reduce-mean",
        ops=("scatter_reduce",),
        condition='reduce="mean"',
        breaks=lambda call: call["reduce"] == "mean",
        effect="error",
        message="scatter_reduce with mean is not supported on MPS",
        remedy="sum and count",
        source="text in the wheel 2.7.1",
        evidence="binary",
    ),
    Rule(
        id="unique-inverse",
        ops=("_unique2", "unique_dim"),
        condition="int64 values over 2^24 with return_inverse",
        breaks=_wide_unique,
        effect="silent",
        message="the inverse indices of int64 values over 2^24 are wrong",
        remedy="compute it on the host",
        source="pytorch #195595",
        evidence="thread",
    ),
)
