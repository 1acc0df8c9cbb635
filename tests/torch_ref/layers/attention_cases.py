"""Attention calls that catch one fault each, and their results in float64.

A candidate takes the arguments of torch.nn.functional.scaled_dot_product_attention up to enable_gqa.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

Candidate = Callable[..., Tensor]
native: Candidate = F.scaled_dot_product_attention
B, H, L, S, E = 2, 4, 97, 83, 16  # odd on purpose: no chunk divides them


@dataclass(frozen=True)
class Case:
    """One call. shape: (B, H, L, S, E); mask: (kind, shape), kinds as in `inputs`."""

    catches: str
    shape: tuple[int, ...] = (B, H, L, S, E)
    key_heads: int | None = None
    value_width: int | None = None
    mask: tuple[str, tuple[int, ...]] | None = None
    dtype: torch.dtype = torch.float32
    std: float = 1.0
    strided: bool = False
    options: dict[str, Any] = field(default_factory=dict)


GQA = {"enable_gqa": True}
CAUSAL = {"is_causal": True}
CASES = {
    "odd sizes": Case("chunk arithmetic, a short last chunk"),
    "causal, square": Case("a diagonal that restarts in every chunk", (B, H, 96, 96, E), options=CAUSAL),
    "causal, more keys": Case("a diagonal from the lower right", (B, H, 40, 97, E), options=CAUSAL),
    "causal, more rows": Case("rows past the last key", (B, H, 97, 40, E), options=CAUSAL),
    "key bias": Case("slicing a mask whose rows are shared", mask=("add", (B, 1, 1, S))),
    "two-dimensional mask": Case("indexing rows as axis 2", mask=("add", (L, S))),
    "three-dimensional mask": Case("heads taken for a batch", mask=("add", (H, L, S))),
    "row bias": Case("slicing a mask whose keys are shared", mask=("add", (B, 1, L, 1))),
    "boolean mask": Case("keep and drop swapped, mask not cut", mask=("keep", (B, H, L, S))),
    "gqa": Case("heads tiled instead of repeated", (B, 8, L, S, E), 2, options=GQA),
    "gqa with a mask": Case(
        "mask heads grouped wrongly", (B, 8, L, S, E), 2, mask=("add", (B, 8, L, S)), options=GQA
    ),
    "mqa, causal": Case("the diagonal of grouped rows", (B, 6, 64, 64, E), 1, options=GQA | CAUSAL),
    "gqa, one row": Case(
        "decoding with a key mask",
        (B, 16, 1, 75, 64),
        4,
        mask=("keep", (B, 1, 1, 75)),
        options=GQA | {"scale": 1.0},
    ),
    "scale": Case("scale ignored", options={"scale": 0.37}),
    "rows without keys": Case("NaN, or the mean of V", mask=("keep, rows without keys", (B, 1, L, S))),
    "value width": Case("an output of the query's width", value_width=24),
    "strided": Case("strides ignored", strided=True),
    "one row, many keys": Case("only queries cut", (B, H, 1, 333, E)),
    "bfloat16": Case(
        "scores in the input dtype",
        (B, H, 70, 200, 64),
        mask=("add", (1, 1, 70, 200)),
        dtype=torch.bfloat16,
        std=2.0,
    ),
    "float16": Case("scores in the input dtype", (B, H, 70, 200, 64), dtype=torch.float16, std=2.0),
    "float16, causal": Case(
        "rows that see later keys",
        (B, H, 70, 70, 64),
        dtype=torch.float16,
        std=2.0,
        options=CAUSAL,
    ),
    "large logits": Case("no running maximum: exp overflows", (B, H, L, S, 32), std=30.0),
    "one head": Case("two dimensions", (L, S, E)),
    "no batch": Case("three dimensions", (H, L, S, E)),
    "two batches": Case("five dimensions", (2, 3, H, 20, 30, E), mask=("keep", (3, 1, 20, 30))),
    "no keys": Case("0 / 0", (B, H, 5, 0, E)),
}


def inputs(name: str) -> tuple[list[Tensor], dict[str, Any]]:
    """Query, key and value, and the keyword arguments of a case: with fixed numbers.

    Masks: "add" is normal, "keep" is boolean, "keep, rows without keys" masks all keys of rows 30 to 34.
    """
    case = CASES[name]
    rng = np.random.default_rng(sorted(CASES).index(name))

    def normal(*shape: int, std: float = 1.0) -> Tensor:
        return torch.from_numpy(rng.standard_normal(shape) * std).to(case.dtype)

    *lead, rows, keys, width = case.shape
    key_lead = lead if case.key_heads is None else [*lead[:-1], case.key_heads]
    tensors = [
        normal(*lead, rows, width, std=case.std),
        normal(*key_lead, keys, width, std=case.std),
        normal(*key_lead, keys, case.value_width or width),
    ]
    if case.strided:
        tensors = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in tensors]
    options = dict(case.options)
    if case.mask is not None:
        kind, shape = case.mask
        mask = normal(*shape) if kind == "add" else torch.from_numpy(rng.random(shape) > 0.4)
        if "without" in kind:
            mask[..., 30:35, :] = False
        options["attn_mask"] = mask
    return tensors, options


def scores64(query: Tensor, key: Tensor, options: dict[str, Any]) -> Tensor:
    """Masked scores in float64, heads repeated."""
    q, k = query.double(), key.double()
    if options.get("enable_gqa"):
        k = k.repeat_interleave(q.shape[-3] // k.shape[-3], -3)
    scale = options.get("scale")
    scores = q @ k.transpose(-2, -1) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if options.get("is_causal"):
        scores = scores.masked_fill(~torch.ones(scores.shape[-2:], dtype=torch.bool).tril(), -math.inf)
    mask = options.get("attn_mask")
    if mask is not None and mask.dtype == torch.bool:
        scores = scores.masked_fill(~mask, -math.inf)
    return scores if mask is None or mask.dtype == torch.bool else scores + mask.double()


def truth(tensors: list[Tensor], options: dict[str, Any]) -> Tensor:
    """The whole matrix in float64; rows without keys are 0."""
    query, key, value = tensors
    weights = torch.nan_to_num(torch.softmax(scores64(query, key, options), -1), nan=0.0)
    if options.get("enable_gqa"):
        value = value.repeat_interleave(query.shape[-3] // value.shape[-3], -3)
    return weights @ value.double()


def tolerance(tensors: list[Tensor], options: dict[str, Any], exact: Tensor) -> Tensor:
    """Per row: 16 float32 roundings of its largest score times max |V|, one rounding of the output dtype."""
    query, key, value = tensors
    if not key.shape[-2]:
        return torch.zeros(())
    top = scores64(query, key, options).amax(-1, keepdim=True).abs()
    top = top.masked_fill(top.isinf(), 0.0)
    rounding = {torch.float16: 2.0**-10, torch.bfloat16: 2.0**-8}.get(query.dtype, 0.0)
    return 16 * 2.0**-24 * (1 + top) * value.double().abs().amax() + rounding * exact.abs().amax()


def fault(candidate: Candidate, name: str) -> str | None:
    """Fault in a candidate's result for a case; None for a right result."""
    return fault_of(candidate, *inputs(name))


def fault_of(candidate: Candidate, tensors: list[Tensor], options: dict[str, Any]) -> str | None:
    """Fault in a candidate's result for a call; None for a right result."""
    exact = truth(tensors, options)
    try:
        out = candidate(*tensors, **options)
    except (TypeError, ValueError, IndexError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"
    if out.shape != exact.shape or out.dtype != tensors[0].dtype:
        return f"{tuple(out.shape)} {out.dtype} instead of {tuple(exact.shape)} {tensors[0].dtype}"
    error = (out.double() - exact).abs()
    bound = tolerance(tensors, options, exact)
    if bool((error <= bound).all()):
        return None
    outside = (error > bound).sum().item()
    return f"max abs error {error.max().item():.3g}, {outside} of {error.numel()} values out"


TWO_ROWS = {  # causal calls whose last block has 2 rows: rows, keys, q_chunk (None: blocks of 128)
    "2 rows": (2, 2, 64),
    "66 rows": (66, 66, 64),
    "66 rows, 70 keys": (66, 70, 64),
    "130 rows": (130, 130, None),
}


def causal_fault(candidate: Candidate, rows: int, keys: int) -> str | None:
    """Fault in a candidate's result for a causal call of two heads; None for a right result."""
    rng = np.random.default_rng(100 * rows + keys)
    shapes = (1, 2, rows, 8), (1, 2, keys, 8), (1, 2, keys, 8)
    tensors = [torch.from_numpy(rng.standard_normal(shape)).float() for shape in shapes]
    return fault_of(candidate, tensors, dict(CAUSAL))
