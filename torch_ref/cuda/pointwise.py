"""Work between matrix products of several rows, as Triton kernels; rounded where the plain layers round."""

# pyright: reportInvalidTypeForm=false
# (Triton reads the kernels' annotations)

from __future__ import annotations

import torch
from torch import Tensor

from torch_ref.cuda.triton import jit, pdl, tl, triton
from torch_ref.layers.rope import Rotation


def add_norm(
    x: Tensor,
    added: Tensor | None,
    gain: Tensor,
    eps: float,
    *,
    rest: Tensor | None = None,
    rest_gain: Tensor | None = None,
    texts: int | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Add `added` to x in place and compute its RMS norm.

    x (R, D), added (R, D) or None → (R, D), `out` if given.
    rest: (D,), added to the rows from `texts` on, whose norm takes `rest_gain`.
    """
    rows, width = x.shape
    out = x.new_empty(rows, width) if out is None else out
    _add_norm[rows,](
        x, x if added is None else added, gain, x if rest is None else rest,
        gain if rest_gain is None else rest_gain, out, width, eps, rows if texts is None else texts,
        ADDED=added is not None, REST=rest is not None, BLOCK=triton.next_power_of_2(width),
        num_warps=8 if width > 1024 else 4, **pdl(x.device),
    )  # fmt: skip
    return out


def add_layer_norm(
    x: Tensor, added: Tensor | None, gain: Tensor, bias: Tensor, eps: float, *, dtype: torch.dtype
) -> Tensor:
    """Add `added` to x in place and compute its layer norm.

    x (R, D) float32, added (R, D) or None, gain and bias (D,) float32 → (R, D) of `dtype`.
    """
    rows, width = x.shape
    out = x.new_empty(rows, width, dtype=dtype)
    _add_layer_norm[rows,](
        x, x if added is None else added, gain, bias, out, width, eps, ADDED=added is not None,
        BLOCK=triton.next_power_of_2(width), num_warps=4, **pdl(x.device),
    )  # fmt: skip
    return out


def gated(gate_up: Tensor) -> Tensor:
    """Compute silu(gate) · up. (R, 2N), gate and up side by side → (R, N)."""
    rows, width = gate_up.shape[0], gate_up.shape[1] // 2
    out = gate_up.new_empty(rows, width)
    _gated[rows, triton.cdiv(width, 1024)](gate_up, out, width, BLOCK=1024, num_warps=4, **pdl(out.device))
    return out


def rotate(x: Tensor, rotation: Rotation, heads: int, length: int) -> None:
    """Rotate the first `heads` heads of every row by its position, in place, as layers.rope.rotate does.

    x: (R, N), contiguous; row r is at position r % length.
    rotation: tables of `length` positions at least, (T, E/2) each.
    """
    cos, sin = rotation
    half = cos.shape[1]
    _rotate[len(x), heads](
        x, cos, sin, x.shape[1], length, HALF=half, BLOCK=triton.next_power_of_2(half), num_warps=1,
        enable_fp_fusion=False, **pdl(x.device),
    )  # fmt: skip


@jit
def _add_norm(
    x, added, gain, rest, rest_gain, out, width, eps, texts,
    ADDED: tl.constexpr, REST: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    row, col = tl.program_id(0), tl.arange(0, BLOCK)
    inside = col < width
    factor = tl.load(gain + col, mask=inside, other=0.0)
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    at = x + row * width + col
    y = tl.load(at, mask=inside, other=0.0)
    if ADDED:
        more = tl.load(added + row * width + col, mask=inside, other=0.0)
        y = (y.to(tl.float32) + more.to(tl.float32)).to(y.dtype)
    if REST:  # noqa: SIM102 (known when the kernel is compiled)
        if row >= texts:
            more = tl.load(rest + col, mask=inside, other=0.0)
            y = (y.to(tl.float32) + more.to(tl.float32)).to(y.dtype)
            factor = tl.load(rest_gain + col, mask=inside, other=0.0)
    if ADDED or REST:
        tl.store(at, y, mask=inside)
    wide = y.to(tl.float32)
    scale = 1 / tl.sqrt(tl.sum(wide * wide, axis=0) / width + eps)
    normal = (wide * scale).to(factor.dtype).to(tl.float32) * factor.to(tl.float32)
    tl.store(out + row * width + col, normal.to(y.dtype), mask=inside)


@jit
def _add_layer_norm(
    x, added, gain, bias, out, width, eps, ADDED: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr
):
    col = tl.arange(0, BLOCK)
    inside = col < width
    at = tl.program_id(0).to(tl.int64) * width + col
    factor, shift = tl.load(gain + col, mask=inside, other=0.0), tl.load(bias + col, mask=inside, other=0.0)
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    y = tl.load(x + at, mask=inside, other=0.0)
    if ADDED:
        y += tl.load(added + at, mask=inside, other=0.0).to(tl.float32)
        tl.store(x + at, y, mask=inside)
    normal = standardized(y, inside, width, eps) * factor + shift
    tl.store(out + at, normal.to(out.dtype.element_ty), mask=inside)


@jit
def standardized(y, inside, width, eps):
    """Compute (y - mean) / sqrt(variance + eps) of the numbers inside."""
    centered = tl.where(inside, y - tl.sum(y, axis=0) / width, 0.0)
    return centered * (1 / tl.sqrt(tl.sum(centered * centered, axis=0) / width + eps))


@jit
def _gated(gate_up, out, width, BLOCK: tl.constexpr, PDL: tl.constexpr):
    row, col = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    at = gate_up + row.to(tl.int64) * 2 * width + col
    gate = tl.load(at, mask=col < width, other=0.0)
    up = tl.load(at + width, mask=col < width, other=0.0).to(tl.float32)
    kind = gate.dtype
    gate = gate.to(tl.float32)
    opened = (gate / (1 + tl.exp(-gate))).to(kind).to(tl.float32)
    tl.store(out + row.to(tl.int64) * width + col, (opened * up).to(kind), mask=col < width)


@jit
def _rotate(x, cos, sin, width, length, HALF: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr):
    row, col = tl.program_id(0), tl.arange(0, BLOCK)
    inside = col < HALF
    angle = row % length * HALF + col
    c, s = tl.load(cos + angle, mask=inside, other=0.0), tl.load(sin + angle, mask=inside, other=0.0)
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    at = x + row.to(tl.int64) * width + tl.program_id(1) * 2 * HALF + col
    first = tl.load(at, mask=inside, other=0.0)
    second = tl.load(at + HALF, mask=inside, other=0.0).to(tl.float32)
    kind = first.dtype
    first = first.to(tl.float32)
    tl.store(at, (first * c - second * s).to(kind), mask=inside)
    tl.store(at + HALF, (second * c + first * s).to(kind), mask=inside)
