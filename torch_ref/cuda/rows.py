"""Linear maps of one to three rows as Triton kernels, bound by the weights' bytes.

Each does the arithmetic of the plain layers with their roundings to the network's dtype, and sums in float32.
A weight is read once for all rows. A program keeps the normalized rows in registers, walks over tiles of the
weight, and loads the next tile before it sums the present one. With programmatic dependent launch (Hopper and
later) the first tile is loaded while the previous kernel ends.
"""

# pyright: reportInvalidTypeForm=false
# (Triton reads the kernels' annotations)

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torch_ref.cuda.triton import INTERPRETED, jit, pdl, processors, tl, triton

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
CAPABILITY = (8, 0)  # the lowest that Triton supports
MOST_ROWS = 3  # of x at once
# Measured on an H200 in bfloat16, milliseconds of Dia's step of one text: 1.02; with long rows in parts of
# 2,048 numbers by 4 warps and 4 programs 1.03, whole 1.09. Asking the L2 cache for the next kernels' weights
# costs 4 to 12 %, for later tiles 1 to 25 %.
TILE_BYTES = 16384  # of a weight per step of a program, whole rows or parts of it
WARPS = 4
PROGRAMS = 4  # per multiprocessor
LONG = 2048  # numbers of a row; longer ones are summed in parts, where no norm needs the whole row
PART = 1024
PART_WARPS = 8
PART_PROGRAMS = 2


def usable(weight: Tensor, head_dim: int, *, rows: int = 1) -> bool:
    """Return whether the kernels support a network with this weight: NVIDIA GPUs with Triton."""
    if triton is None or torch.version.hip is not None or not (weight.is_cuda or INTERPRETED):
        return False
    whole = head_dim >= 16 and head_dim & (head_dim - 1) == 0
    able = INTERPRETED or torch.cuda.get_device_capability(weight.device) >= CAPABILITY
    return able and whole and weight.dtype in DTYPES and rows <= MOST_ROWS


def normed_linear(x: Tensor, gain: Tensor, eps: float, weight: Tensor) -> Tensor:
    """Apply a linear map to RMS-normed x. (R, D), weight (N, D) → (R, N)."""
    out = weight.new_empty(len(x), len(weight))
    grid, sizes = _programs(x, weight)
    _normed_linear[grid](x, gain, weight, out, *weight.shape, eps, **sizes)
    return out


def gated_linear(x: Tensor, gain: Tensor, eps: float, gate: Tensor, up: Tensor) -> Tensor:
    """Compute silu(gate y) · (up y) of RMS-normed x, y. (R, D), (N, D) each → (R, N)."""
    out = gate.new_empty(len(x), len(gate))
    grid, sizes = _programs(x, gate, weights=2)
    _gated_linear[grid](x, gain, gate, up, out, *gate.shape, eps, **sizes)
    return out


def add_linear(x: Tensor, hidden: Tensor, weight: Tensor, rest: Tensor | None = None) -> None:
    """Add hidden weightᵀ to x in place. (R, N), (R, D), (N, D).

    rest: (N,), added to the rows of x after those of hidden.
    """
    grid, sizes = _programs(hidden, weight, in_parts=True)
    more = 0 if rest is None else len(x) - len(hidden)
    _add_linear[grid](
        x, hidden, weight, weight if rest is None else rest, *weight.shape,
        MORE=more, PARTS=triton.cdiv(weight.shape[1], sizes["BLOCK"]), **sizes,
    )  # fmt: skip


def _programs(
    x: Tensor, weight: Tensor, *, weights: int = 1, in_parts: bool = False
) -> tuple[tuple[int], dict[str, Any]]:
    """Return the grid of a weight's programs, and the sizes of the tile that each takes at a time.

    in_parts: tiles need not have whole rows.
    """
    rows, width = weight.shape
    block, warps, programs = triton.next_power_of_2(width), WARPS, PROGRAMS
    if in_parts and block > LONG:
        block, warps, programs = PART, PART_WARPS, PART_PROGRAMS
    tile_rows = max(1, TILE_BYTES // (block * weights * weight.element_size()))
    count = min(triton.cdiv(rows, tile_rows), programs * processors(weight.device))
    sizes = {"R": len(x), "ROWS": tile_rows, "BLOCK": block, "num_warps": warps}
    return (count,), sizes | pdl(weight.device)


@jit
def _normed_linear(
    x, gain, weight, out, rows, width, eps,
    R: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    first, step, tiles = tl.program_id(0), tl.num_programs(0), tl.cdiv(rows, ROWS)
    col = tl.arange(0, BLOCK)
    factor = tl.load(gain + col, mask=col < width, other=0.0)
    tile = _tile(weight, first, rows, width, col, ROWS)
    if PDL:
        tl.extra.cuda.gdc_wait()
    a, b, c = _rows(x, col, width, R)
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
    a = _normed(a, factor, width, eps, tile.dtype)
    b = _normed(b, factor, width, eps, tile.dtype) if R > 1 else a
    c = _normed(c, factor, width, eps, tile.dtype) if R > 2 else a
    for number in range(first, tiles, step):
        following = _tile(weight, number + step, rows, width, col, ROWS)
        row = number * ROWS + tl.arange(0, ROWS)
        ya, yb, yc = _products(tile, a, b, c, R)
        _put(out, row, rows, ya, yb, yc, R)
        tile = following


@jit
def _gated_linear(
    x, gain, gate, up, out, rows, width, eps,
    R: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    first, step, tiles = tl.program_id(0), tl.num_programs(0), tl.cdiv(rows, ROWS)
    col = tl.arange(0, BLOCK)
    factor = tl.load(gain + col, mask=col < width, other=0.0)
    gate_tile = _tile(gate, first, rows, width, col, ROWS)
    up_tile = _tile(up, first, rows, width, col, ROWS)
    kind = gate_tile.dtype
    if PDL:
        tl.extra.cuda.gdc_wait()
    a, b, c = _rows(x, col, width, R)
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
    a = _normed(a, factor, width, eps, kind)
    b = _normed(b, factor, width, eps, kind) if R > 1 else a
    c = _normed(c, factor, width, eps, kind) if R > 2 else a
    for number in range(first, tiles, step):
        gate_next = _tile(gate, number + step, rows, width, col, ROWS)
        up_next = _tile(up, number + step, rows, width, col, ROWS)
        row = number * ROWS + tl.arange(0, ROWS)
        ga, gb, gc = _products(gate_tile, a, b, c, R)
        ua, ub, uc = _products(up_tile, a, b, c, R)
        _put(out, row, rows, _gated(ga, ua, kind), _gated(gb, ub, kind), _gated(gc, uc, kind), R)
        gate_tile, up_tile = gate_next, up_next


@jit
def _add_linear(
    x, hidden, weight, rest, rows, width,
    R: tl.constexpr, MORE: tl.constexpr, PARTS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    first, step, tiles = tl.program_id(0), tl.num_programs(0), tl.cdiv(rows, ROWS)
    col = tl.arange(0, BLOCK)
    tile = _tile(weight, first, rows, width, col, ROWS)
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    if PARTS == 1:
        a, b, c = _rows(hidden, col, width, R)
    for number in range(first, tiles, step):
        row = number * ROWS + tl.arange(0, ROWS)
        kind = tile.dtype
        inside = row < rows
        old_a = tl.load(x + row, mask=inside, other=0.0)  # here, so that no sum waits for it
        old_b = tl.load(x + rows + row, mask=inside, other=0.0) if R > 1 else old_a
        old_c = tl.load(x + 2 * rows + row, mask=inside, other=0.0) if R > 2 else old_a
        if MORE:
            more = tl.load(rest + row, mask=inside, other=0.0)
            for r in tl.static_range(MORE):
                others = x + (R + r) * rows + row
                tl.store(others, _added(tl.load(others, mask=inside, other=0.0), more, kind), mask=inside)
        ya = tl.zeros([ROWS], dtype=tl.float32)
        yb, yc = ya, ya
        for part in range(PARTS):
            after = tl.where(part + 1 < PARTS, number, number + step)
            at = (part + 1) % PARTS * BLOCK + col
            following = _tile(weight, after, rows, width, at, ROWS)
            if PARTS > 1:
                a, b, c = _rows(hidden, part * BLOCK + col, width, R)
            more_a, more_b, more_c = _products(tile, a.to(tl.float32), b.to(tl.float32), c.to(tl.float32), R)
            ya, yb, yc = ya + more_a, yb + more_b, yc + more_c
            tile = following
        tl.store(x + row, _added(old_a, ya, kind), mask=inside)
        if R > 1:
            tl.store(x + rows + row, _added(old_b, yb, kind), mask=inside)
        if R > 2:
            tl.store(x + 2 * rows + row, _added(old_c, yc, kind), mask=inside)


@jit
def _tile(weight, number, rows, width, col, ROWS: tl.constexpr):
    """Load ROWS rows of a weight from place · ROWS on; zeros past its end."""
    row = number * ROWS + tl.arange(0, ROWS)
    inside = (row[:, None] < rows) & (col[None, :] < width)
    return tl.load(weight + row[:, None] * width + col[None, :], mask=inside, other=0.0)


@jit
def _rows(x, col, width, R: tl.constexpr):
    """Load up to three rows of x; those past R repeat the first and are not used."""
    inside = col < width
    first = tl.load(x + col, mask=inside, other=0.0)
    second, third = first, first
    if R > 1:
        second = tl.load(x + width + col, mask=inside, other=0.0)
    if R > 2:
        third = tl.load(x + 2 * width + col, mask=inside, other=0.0)
    return first, second, third


@jit
def _normed(x, factor, width, eps, kind: tl.constexpr):
    """Compute the RMS norm in float32; round to the gain's dtype before its product, to `kind` after it."""
    wide = x.to(tl.float32)
    scale = 1 / tl.sqrt(tl.sum(wide * wide, axis=0) / width + eps)
    normal = (wide * scale).to(factor.dtype).to(tl.float32)
    return (normal * factor.to(tl.float32)).to(kind).to(tl.float32)


@jit
def _products(tile, a, b, c, R: tl.constexpr):
    """Multiply the tile's rows by each of up to three rows."""
    wide = tile.to(tl.float32)
    ya = wide * a[None, :]
    if R == 1:
        ya = tl.sum(ya, axis=1)
        yb, yc = ya, ya
    elif R == 2:
        ya, yb = tl.reduce((ya, wide * b[None, :]), 1, _plus2)
        yc = ya
    else:
        ya, yb, yc = tl.reduce((ya, wide * b[None, :], wide * c[None, :]), 1, _plus3)
    return ya, yb, yc


@jit
def _plus2(a, b, more_a, more_b):
    return a + more_a, b + more_b


@jit
def _plus3(a, b, c, more_a, more_b, more_c):
    return a + more_a, b + more_b, c + more_c


@jit
def _gated(gate, up, kind: tl.constexpr):
    """Compute silu(gate) · up, rounded where the layers round."""
    gate, up = gate.to(kind).to(tl.float32), up.to(kind).to(tl.float32)
    return (gate / (1 + tl.exp(-gate))).to(kind).to(tl.float32) * up


@jit
def _put(out, row, rows, ya, yb, yc, R: tl.constexpr):
    inside = row < rows
    kind = out.dtype.element_ty
    tl.store(out + row, ya.to(kind), mask=inside)
    if R > 1:
        tl.store(out + rows + row, yb.to(kind), mask=inside)
    if R > 2:
        tl.store(out + 2 * rows + row, yc.to(kind), mask=inside)


@jit
def _added(old, y, kind: tl.constexpr):
    """Add y, rounded to `kind` first."""
    return (old.to(tl.float32) + y.to(kind).to(tl.float32)).to(old.dtype)
