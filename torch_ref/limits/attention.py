"""Limits of scaled_dot_product_attention.

Kernels: vector kernels for up to 8 query rows, from 2.13 prefill kernels for more (pytorch PR #181575;
PYTORCH_MPS_DISABLE_PREFILL_ATTENTION=1 turns them off). All other calls use the graph ("general" below), with
a whole score matrix. A call that needs a gradient or dropout is composite in every release.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from torch_ref.limits.rule import Call, Rule, Where, torch_range

SDPA = ("scaled_dot_product_attention",)
HALF = (torch.float16, torch.bfloat16)
VECTOR_ROWS = 8
VECTOR_WIDTHS = (64, 96, 128, 256)
PREFILL_SINCE = (2, 13)
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
    if _vector(call):
        return False
    fits = query.shape[-1] in PREFILL_WIDTHS and query.shape[-1] == call["value"].shape[-1]
    fits = fits and (mask is None or mask.dtype in (torch.bool, query.dtype))
    return call.backend.torch_version < PREFILL_SINCE or not fits


def last_contiguous(mask: Tensor | None, keys: int) -> bool:
    """Return True if a mask, expanded to all keys, has stride 1: the memory-efficient kernel needs it."""
    return mask is None or keys == 1 or (mask.shape[-1] == keys and mask.stride(-1) == 1)


def _mask_dtype(call: Call) -> bool:
    mask = call["attn_mask"]
    if mask is None or not _kernel(call) or not _general(call):
        return False
    if call.history is None:
        return mask.dtype != call["query"].dtype
    first = call.history.first.get(call.history.key(call))
    return first is not None and first[0] != mask.dtype


def _scale(call: Call) -> bool:
    usual = call["query"].shape[-1] ** -0.5
    scale = usual if call["scale"] is None else call["scale"]
    if not _kernel(call):
        return False
    if call.history is None:
        return not math.isclose(scale, usual, rel_tol=1e-6)
    first = call.history.first.get(call.history.key(call))
    return first is not None and not math.isclose(scale, first[1], rel_tol=1e-6)


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


def _score_bytes(call: Call) -> bool:
    return _general(call) and math.prod(score_shape(call)) * call["query"].dtype.itemsize > 2**32


def _integer(call: Call) -> bool:
    return any(not x.dtype.is_floating_point for x in _inputs(call))


def _inputs(call: Call) -> list[Tensor]:
    return [call[name] for name in ("query", "key", "value")]


RULES = (
    Rule(
        id="sdpa-mask-dtype-cached",
        ops=SDPA,
        condition="a mask of another dtype than at the first call with the same key of the graph cache",
        breaks=_mask_dtype,
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
        where=torch_range(None, "2.13"),
        effect="silent",
        message="the scale is ignored: the cached graph keeps that of its first call",
        remedy="multiply the query by scale * sqrt(E) and keep the default scale",
        source="pytorch PR #184122; wheels to 2.12.1, 2.13.0, 2.15.0",
        evidence="binary",
    ),
    Rule(
        id="sdpa-strided",
        ops=SDPA,
        condition="query, key or value not contiguous, at most 8 rows, width 64, 96, 128 or 256",
        breaks=_strided,
        where=torch_range(None, "2.12"),
        effect="silent",
        message="the vector kernels ignore strides",
        remedy="call .contiguous() on all three",
        source="pytorch #181133 (batch stride, to 2.11)",
        evidence="thread",
    ),
    Rule(
        id="sdpa-mask-broadcast",
        ops=SDPA,
        condition="a mask per batch but not per head, or the reverse; at most 8 rows, width as above",
        breaks=_partly_broadcast,
        where=torch_range(None, "2.13"),
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
        where=torch_range(None, "2.12"),
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
        effect="error",
        message="_scaled_dot_product_attention: Explicit attn_mask should not be set when is_causal=True",
        remedy="put causality into the mask",
        source="wheels; pytorch #187801 (a CPU does not raise)",
        evidence="binary",
    ),
    Rule(
        id="sdpa-scores-4gib",
        ops=SDPA,
        condition="B H L S itemsize over 2^32 bytes where the whole score matrix is built",
        breaks=_score_bytes,
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
        id="sdpa-integer",
        ops=SDPA,
        condition="integer query, key or value",
        breaks=_integer,
        effect="error",
        message="scaled_dot_product_attention for MPS does not support dtype",
        remedy="cast to a floating dtype",
        source="text in the wheels",
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
        effect="error",
        message="(*bias): last dimension must be contiguous",
        remedy="attend in blocks, or copy the mask",
        source="torch 2.11 on an H200 (run, broadcast mask); pytorch #109607, keras #20459",
        evidence="thread",
        device="cuda",
    ),
)
