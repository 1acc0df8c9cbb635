"""Limits of scaled_dot_product_attention.

Kernels by release: before 2.5 composite operators; 2.5 an MPSGraph kernel; 2.8 vector kernels for up to 8
query rows; 2.13 prefill kernels. All other calls use the graph ("general" below), with a whole score matrix.
A call that needs a gradient or dropout is composite in every release.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from torch_ref.limits.rule import EVERYWHERE, Call, Rule, Where, torch_range

SDPA = ("scaled_dot_product_attention",)
HALF = (torch.float16, torch.bfloat16)
VECTOR_ROWS = 8
VECTOR_WIDTHS = (64, 96, 128, 256)
PREFILL_WIDTHS = (32, 64, 72, 80, 96, 128, 256)


def score_shape(call: Call) -> tuple[int, ...]:
    """Return the shape of the scores, (..., H, L, S)."""
    query, key = call["query"], call["key"]
    return (*query.shape[:-1], key.shape[-2])


def _kernel(call: Call) -> bool:
    """Return True if the call uses MPS's own kernels: no gradient, no dropout."""
    inputs = [call[name] for name in ("query", "key", "value")]
    return not call["dropout_p"] and not (torch.is_grad_enabled() and any(x.requires_grad for x in inputs))


def _vector(call: Call) -> bool:
    return (
        _kernel(call) and call["query"].shape[-2] <= VECTOR_ROWS and call["query"].shape[-1] in VECTOR_WIDTHS
    )


def _general(call: Call) -> bool:
    """Return True if the whole score matrix is built."""
    if not _kernel(call):
        return True
    query, mask = call["query"], call["attn_mask"]
    if call.backend.torch_version >= (2, 8) and _vector(call):
        return False
    fits = query.shape[-1] in PREFILL_WIDTHS and query.shape[-1] == call["value"].shape[-1]
    fits = fits and (mask is None or mask.dtype in (torch.bool, query.dtype))
    return call.backend.torch_version < (2, 13) or not fits


def _grouped(call: Call) -> bool:
    query, key = call["query"], call["key"]
    return query.dim() > 2 and query.shape[-3] != key.shape[-3]


def last_contiguous(mask: Tensor | None, keys: int) -> bool:
    """Return True if a mask, expanded to all keys, has stride 1: the memory-efficient kernel needs it."""
    return mask is None or keys == 1 or (mask.shape[-1] == keys and mask.stride(-1) == 1)


def _mask_shape(call: Call) -> bool | str:
    mask = call["attn_mask"]
    if mask is None or not _kernel(call):
        return False
    if call.history is None:
        return tuple(mask.shape) != score_shape(call)
    first = call.history.first.get(call.history.key(call))
    if first is None or first[0] is None or first[0] == tuple(mask.shape):
        return False
    pairs = list(zip(first[0], mask.shape, strict=False))
    axis = next((i for i, (old, new) in enumerate(pairs) if old != new), None)
    if axis is None:
        return f"Placeholder shape mismatches (expected rank {len(first[0])} vs got {mask.dim()})"
    return (
        f"Placeholder shape mismatches (expected {pairs[axis][0]} vs got {pairs[axis][1]}) at dimIdx = {axis}"
    )


def _mask_dtype(call: Call) -> bool:
    mask = call["attn_mask"]
    if mask is None or not _kernel(call) or not _general(call):
        return False
    if call.history is None:
        return mask.dtype != call["query"].dtype
    first = call.history.first.get(call.history.key(call))
    return first is not None and first[1] is not None and first[1] != mask.dtype


def _scale(call: Call) -> bool:
    usual = call["query"].shape[-1] ** -0.5
    scale = usual if call["scale"] is None else call["scale"]
    if not _kernel(call):
        return False
    if call.history is None:
        return not math.isclose(scale, usual, rel_tol=1e-6)
    first = call.history.first.get(call.history.key(call))
    return first is not None and first[2] is not None and not math.isclose(scale, first[2], rel_tol=1e-6)


def _strided(call: Call) -> bool:
    return _vector(call) and any(not call[name].is_contiguous() for name in ("query", "key", "value"))


def _partly_broadcast(call: Call) -> bool:
    mask = call["attn_mask"]
    if mask is None or not _vector(call):
        return False
    lead = score_shape(call)[:-2]
    sizes = (1,) * (len(lead) + 2 - mask.dim()) + tuple(mask.shape)
    full = [m == n for m, n in zip(sizes, lead, strict=False) if n > 1]
    return any(full) and not all(full)


def _leading_differ(call: Call) -> bool:
    query, key, value = (call[name].shape for name in ("query", "key", "value"))
    heads = () if call["enable_gqa"] else query[-3:-2]
    return _kernel(call) and (
        query[:-3] != key[:-3] or key[:-2] != value[:-2] or (bool(heads) and query[-3] != key[-3])
    )


def _half_causal(call: Call) -> bool:
    query = call["query"]
    return (
        bool(call["is_causal"]) and query.dtype in HALF and query.shape[-2] > VECTOR_ROWS and _general(call)
    )


def _empty_row(call: Call) -> bool:
    mask = call["attn_mask"]
    if mask is None:
        return False
    if call.history is None:
        return True  # checking its values would need a read from the device
    if mask.device.type == "meta":
        return False
    kept = mask if mask.dtype == torch.bool else mask > -math.inf
    return not bool(kept.any(-1).all())


def _score_bytes(call: Call) -> bool:
    return _general(call) and math.prod(score_shape(call)) * call["query"].dtype.itemsize > 2**32


def _integer(call: Call) -> bool:
    return any(not x.dtype.is_floating_point for x in _inputs(call))


def _inputs(call: Call) -> list[Tensor]:
    return [call[name] for name in ("query", "key", "value")]


RULES = (
    Rule(
        id="sdpa-mask-shape-cached",
        ops=SDPA,
        condition="a mask of another shape than at the first call with the same input shapes and is_causal",
        breaks=_mask_shape,
        where=torch_range("2.5", "2.7"),
        effect="abort",
        message="Placeholder shape mismatches",
        remedy="give every mask of the process its full shape (B, H, L, S), or attend in blocks",
        source="InvokeAI #7887; pytorch PR #147545; commit 814ae491; wheels 2.6.0 to 2.13.0",
        evidence="binary",
    ),
    Rule(
        id="sdpa-mask-dtype-cached",
        ops=SDPA,
        condition="a mask of another dtype than at the first call with the same key of the graph cache",
        breaks=_mask_dtype,
        where=torch_range("2.5"),
        effect="abort",
        message="mask dtype differs from the cached graph's placeholder",
        remedy="give masks in the query's dtype",
        source="the mask's dtype is not in the key up to 2.15; that it fails is inferred",
        evidence="claimed",
    ),
    Rule(
        id="sdpa-scale-cached",
        ops=SDPA,
        condition="another scale than at the first call with the same key of the graph cache",
        breaks=_scale,
        where=torch_range("2.5", "2.13"),
        effect="silent",
        message="the scale is ignored: the cached graph keeps that of its first call",
        remedy="multiply the query by scale * sqrt(E) and keep the default scale",
        source="pytorch PR #184122; wheels to 2.12.1, 2.13.0, 2.15.0",
        evidence="binary",
    ),
    Rule(
        id="sdpa-gqa",
        ops=SDPA,
        condition="fewer key heads than query heads, with enable_gqa",
        breaks=lambda call: _kernel(call) and bool(call["enable_gqa"]) and _grouped(call),
        where=torch_range("2.5", "2.7"),
        effect="abort",
        message=(
            'loc("mps_matmul"): error: incompatible dimensions; LLVM ERROR: Failed to infer result type(s).'
        ),
        remedy="make a group's heads rows of its key head, or repeat K and V",
        source="pytorch #149132, nari-labs/dia #197; attention.cpp of 2.6 and 2.7",
        evidence="binary",
    ),
    Rule(
        id="sdpa-heads-unchecked",
        ops=SDPA,
        condition="fewer key heads without enable_gqa, at most 8 rows, width 64, 96, 128 or 256",
        breaks=lambda call: _vector(call) and not call["enable_gqa"] and _grouped(call),
        where=torch_range("2.8", "2.11"),
        effect="silent",
        message="the vector kernels group heads that the caller did not",
        remedy="always pass enable_gqa for grouped heads",
        source="Attention.mm from 2.8",
        evidence="source",
    ),
    Rule(
        id="sdpa-gqa-two-pass",
        ops=SDPA,
        condition="grouped heads, at most 8 rows, 1,024 keys or more, width 64, 96, 128 or 256",
        breaks=lambda call: _vector(call) and _grouped(call) and call["key"].shape[-2] >= 1024,
        where=torch_range("2.8", "2.11"),
        effect="silent",
        message="the two-pass kernel reads outside K and V",
        remedy="make a group's heads rows of its key head, or attend in blocks",
        source="pytorch PR #174861",
        evidence="thread",
    ),
    Rule(
        id="sdpa-keys-32",
        ops=SDPA,
        condition="at most 8 rows, a number of keys that 32 does not divide, width 64, 96, 128 or 256",
        breaks=lambda call: _vector(call) and call["key"].shape[-2] % 32 != 0,
        where=torch_range("2.8", "2.10"),
        effect="silent",
        message="the vector kernels read past the end of K and V",
        remedy="attend in blocks, or pad the keys and mask them",
        source="pytorch PR #169222 (closed; whether 2.10 has it was not seen)",
        evidence="thread",
    ),
    Rule(
        id="sdpa-strided",
        ops=SDPA,
        condition="query, key or value not contiguous, at most 8 rows, width 64, 96, 128 or 256",
        breaks=_strided,
        where=torch_range("2.8", "2.12"),
        effect="silent",
        message="the vector kernels ignore strides",
        remedy="call .contiguous() on all three",
        source="pytorch #163597 (row stride, to 2.8), #181133 (batch stride, to 2.11)",
        evidence="thread",
    ),
    Rule(
        id="sdpa-mask-broadcast",
        ops=SDPA,
        condition="a mask per batch but not per head, or the reverse; at most 8 rows, width as above",
        breaks=_partly_broadcast,
        where=torch_range("2.8", "2.13"),
        effect="silent",
        message="the vector kernels read another batch's mask",
        remedy="expand the mask to (B, H, L, S) and make it contiguous",
        source="pytorch PR #184180",
        evidence="thread",
    ),
    Rule(
        id="sdpa-value-width",
        ops=SDPA,
        condition="values of another width than queries",
        breaks=lambda call: _kernel(call) and call["value"].shape[-1] != call["query"].shape[-1],
        where=torch_range("2.5", "2.12"),
        effect="silent",
        message="the output has the query's width and wrong numbers",
        remedy="pad the values to the query's width and cut the output",
        source="pytorch PR #176767; transformers #44591",
        evidence="source",
    ),
    Rule(
        id="sdpa-leading-broadcast",
        ops=SDPA,
        condition="batch or head dimensions that differ between query, key and value (grouped heads aside)",
        breaks=_leading_differ,
        where=torch_range("2.5"),
        effect="error",
        message="shape '[1, 1, 64]' is invalid for input of size 128",
        remedy="expand them first",
        source="pytorch #189631 (open)",
        evidence="thread",
    ),
    Rule(
        id="sdpa-half-causal",
        ops=SDPA,
        condition="is_causal in float16 or bfloat16, more than 8 rows, no prefill kernel (2.13) for the call",
        breaks=_half_causal,
        where=torch_range("2.5"),
        effect="silent",
        message="the causal mask is applied once per four rows: rows see up to three later keys",
        remedy="give a triangular mask instead of is_causal, or attend in float32",
        source="pytorch #195910; YuE #176, #181 (seen with 2.10; the exact range is not known)",
        evidence="thread",
    ),
    Rule(
        id="sdpa-mask-and-causal",
        ops=SDPA,
        condition="attn_mask and is_causal together",
        breaks=lambda call: call["attn_mask"] is not None and bool(call["is_causal"]),
        where=EVERYWHERE,
        effect="error",
        message="_scaled_dot_product_attention: Explicit attn_mask should not be set when is_causal=True",
        remedy="put causality into the mask",
        source="wheels; pytorch #187801 (a CPU does not raise)",
        evidence="binary",
    ),
    Rule(
        id="sdpa-empty-row",
        ops=SDPA,
        condition="a row whose mask allows no key",
        breaks=_empty_row,
        where=torch_range(None, "2.8"),
        effect="silent",
        message="rows without keys are NaN",
        remedy="set those rows to 0",
        source="pytorch PR #156707",
        evidence="source",
    ),
    Rule(
        id="sdpa-scores-4gib",
        ops=SDPA,
        condition="B H L S itemsize over 2^32 bytes where the whole score matrix is built",
        breaks=_score_bytes,
        where=EVERYWHERE,
        effect="abort",
        message="MPSNDArray.mm:850: failed assertion: Error: total bytes of NDArray > 2**32",
        remedy="attend in blocks of fewer bytes",
        source="pytorch #149261 (open), PR #149268 (seen on macOS 15)",
        evidence="thread",
    ),
    Rule(
        id="sdpa-scores-31-bit",
        ops=SDPA,
        condition="B H L S of 2^31 elements or more where the whole score matrix is built",
        breaks=lambda call: _general(call) and math.prod(score_shape(call)) >= 2**31,
        where=EVERYWHERE,
        effect="silent",
        message="matmul and softmax corrupt 2^31 elements or more",
        remedy="attend in blocks of fewer elements",
        source="ComfyUI #14837 (one report)",
        evidence="claimed",
    ),
    Rule(
        id="sdpa-half-long-rows",
        ops=SDPA,
        condition="float16 or bfloat16 with more than 8,192 keys where the whole score matrix is built",
        breaks=lambda call: _general(call) and call["query"].dtype in HALF and call["key"].shape[-2] > 8192,
        where=torch_range(None, "2.13"),
        effect="silent",
        message="2.4 % of the range is lost over 14,000 keys (0.2 % in blocks with float32 sums)",
        remedy="attend in blocks with float32 sums",
        source="pytorch PR #190791 (open); the bound of 8,192 is ours, 14,000 was measured there",
        evidence="thread",
    ),
    Rule(
        id="sdpa-3d",
        ops=SDPA,
        condition="inputs (H, L, E) without a batch",
        breaks=lambda call: _kernel(call) and call["query"].dim() == 3,
        where=torch_range("2.5", "2.7"),
        effect="error",
        message="scaled_dot_product_attention of 3-D inputs fails",
        remedy="add a batch dimension",
        source="pytorch #146623",
        evidence="thread",
    ),
    Rule(
        id="sdpa-5d",
        ops=SDPA,
        condition="inputs of more than four dimensions",
        breaks=lambda call: _kernel(call) and call["query"].dim() > 4,
        where=torch_range("2.5", "2.7"),
        effect="error",
        message="scaled_dot_product_attention of more than 4 dimensions fails",
        remedy="flatten the batch dimensions",
        source="pytorch #147443, PR #147545",
        evidence="thread",
    ),
    Rule(
        id="sdpa-integer",
        ops=SDPA,
        condition="integer query, key or value",
        breaks=_integer,
        where=torch_range("2.10"),
        effect="error",
        message="scaled_dot_product_attention for MPS does not support dtype",
        remedy="cast to a floating dtype",
        source="wheels from 2.10",
        evidence="binary",
    ),
    Rule(
        id="cuda-sdpa-mask-32-bit",
        ops=SDPA,
        condition="an explicit mask with L S over 2^32",
        breaks=lambda call: call["attn_mask"] is not None and math.prod(score_shape(call)[-2:]) > 2**32,
        where=(Where(torch=(None, "2.14")),),
        effect="silent",
        message="the memory-efficient kernel reads wrapped mask rows",
        remedy="attend in blocks",
        source="pytorch #187225, #186075, #162588 (fixed in mid 2026; the release was not seen)",
        evidence="thread",
        device="cuda",
    ),
    Rule(
        id="cuda-sdpa-mask-last-stride",
        ops=SDPA,
        condition="a mask that is broadcast over the keys, or whose keys are not contiguous",
        breaks=lambda call: not last_contiguous(call["attn_mask"], call["key"].shape[-2]),
        where=EVERYWHERE,
        effect="error",
        message="(*bias): last dimension must be contiguous",
        remedy="attend in blocks, or copy the mask",
        source="torch 2.11 on an H200 (run, broadcast mask); pytorch #109607, keras #20459",
        evidence="thread",
        device="cuda",
    ),
)
