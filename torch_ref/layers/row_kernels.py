"""Triton kernels for decoding one token of a few rows: few launches, limited by the bytes of the weights.

Each kernel computes the plain layers with the same roundings to the network's dtype, and sums in float32.
Every weight is read once for all rows; each program reads a few whole rows of it.
Attention over parts of the keys that are joined afterwards: Dao et al., "Flash-Decoding for long-context
inference", 2023.
"""

# pyright: reportInvalidTypeForm=false
# (Triton reads the kernels' annotations)

from __future__ import annotations

import math
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from torch_ref.layers.rope import Rotation

triton: Any = import_module("triton") if find_spec("triton") else None
tl: Any = import_module("triton.language") if triton else None

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
CAPABILITY = (8, 0)  # the lowest that Triton supports
MOST_ROWS = 3  # of x at once
# Measured on an H200 in bfloat16: a row of MARS5 0.79 ms, of MetaVoice 1.00, two rows of MetaVoice 1.35.
# Tiles of half or twice the size take 3 to 13 % more; 8 warps 3 and 9 % more, except for one row of
# MetaVoice, 1 % less; other keys and parts (16 to 64, 8 to 32) 1 to 9 % more.
TILE, WARPS = 4096, 4  # numbers of a weight per program, in whole rows, and the program's warps
KEYS, SPLITS = 32, 16  # keys at once, and parts of the keys per head


def usable(weight: Tensor, head_dim: int, *, rows: int = 1) -> bool:
    """Return True if the kernels run on a network with this weight: on NVIDIA GPUs with Triton installed."""
    if triton is None or torch.version.hip is not None or not weight.is_cuda:
        return False
    whole = head_dim >= 16 and head_dim & (head_dim - 1) == 0
    able = torch.cuda.get_device_capability(weight.device) >= CAPABILITY
    return able and whole and weight.dtype in DTYPES and rows <= MOST_ROWS


def normed_linear(x: Tensor, gain: Tensor, eps: float, weights: tuple[Tensor, ...]) -> Tensor:
    """Apply linear maps to RMS-normed x. (R, D), weights: one or three of (N, D) → (len(weights), R, N)."""
    first, second, third = weights if len(weights) == 3 else weights * 3
    rows, width = first.shape
    out = first.new_empty(len(weights), len(x), rows)
    grid, sizes = _programs(x, first)
    _normed_linear[*grid, len(weights)](x, gain, eps, first, second, third, out, rows, width, **sizes)
    return out


def gated_linear(x: Tensor, gain: Tensor, eps: float, gate: Tensor, up: Tensor) -> Tensor:
    """Compute silu(gate y) · (up y), y being RMS-normed x. (R, D), (N, D) each → (R, N)."""
    rows, width = gate.shape
    out = gate.new_empty(len(x), rows)
    grid, sizes = _programs(x, gate)
    _gated_linear[grid](x, gain, eps, gate, up, out, rows, width, **sizes)
    return out


def add_linear(x: Tensor, hidden: Tensor, weight: Tensor) -> None:
    """Compute x += hidden weightᵀ in place. (R, N), (R, D), (N, D)."""
    grid, sizes = _programs(hidden, weight)
    _add_linear[grid](x, hidden, weight, *weight.shape, **sizes)


def attend(
    projected: Tensor, position: Tensor, keys: Tensor, values: Tensor, rotation: Rotation | None = None
) -> Tensor:
    """Store each row's key and value in a ring buffer and attend to all that are kept.

    projected: (3, R, H·E), query, key, value.  position: (1,) int64, the rows', on the device.  keys, values:
    (R, H, capacity, E), slot = position % capacity.  rotation: tables of all positions; query and key
    are first rotated in interleaved pairs. → (R, H·E).
    """
    heads, capacity, width = len(keys) * keys.shape[1], *keys.shape[2:]
    parts = torch.empty(heads, SPLITS, width, dtype=torch.float32, device=keys.device)
    sums = torch.empty(2, heads, SPLITS, dtype=torch.float32, device=keys.device)
    out = torch.empty_like(projected[0])
    turned = rotation is not None
    cos, sin = rotation if turned else (projected, projected)
    _attend[heads, SPLITS](
        projected,
        cos,
        sin,
        position,
        keys,
        values,
        parts,
        sums,
        capacity,
        heads,
        1 / math.sqrt(width),
        TURNED=turned,
        KEYS=KEYS,
        SPLITS=SPLITS,
        WIDTH=width,
        num_warps=4,
    )
    _join[heads,](parts, sums, out, heads, SPLITS=SPLITS, WIDTH=width, num_warps=1)
    return out


def _programs(x: Tensor, weight: Tensor) -> tuple[tuple[int], dict[str, int]]:
    """Return the grid of programs for a weight, and the sizes of each program."""
    rows, width = weight.shape
    block = triton.next_power_of_2(width)
    each = max(1, TILE // block)
    return (triton.cdiv(rows, each),), {"R": len(x), "ROWS": each, "BLOCK": block, "num_warps": WARPS}


def _jit(function: Any) -> Any:
    return triton.jit(function) if triton else function


@_jit
def _normed_linear(
    x, gain, eps, first, second, third, out, rows, width,
    R: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    part = tl.program_id(1)
    weight = first
    if part == 1:
        weight = second
    if part == 2:
        weight = third
    row, col, place, there = _tile(rows, width, ROWS, BLOCK)
    # start loading the weight before anything waits
    tile = tl.load(weight + place, mask=there, other=0.0)
    each = _rows(x, col, width, R)
    factor = tl.load(gain + col, mask=col < width, other=0.0)
    for r in tl.static_range(R):
        y = _normed(each[r], factor, width, eps, tile.dtype)
        total = tl.sum(tile.to(tl.float32) * y[None, :], axis=1)
        tl.store(out + (part * R + r) * rows + row, total.to(tile.dtype), mask=row < rows)


@_jit
def _gated_linear(
    x, gain, eps, gate, up, out, rows, width,
    R: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row, col, place, there = _tile(rows, width, ROWS, BLOCK)
    gate_tile = tl.load(gate + place, mask=there, other=0.0)
    up_tile = tl.load(up + place, mask=there, other=0.0)
    each = _rows(x, col, width, R)
    factor = tl.load(gain + col, mask=col < width, other=0.0)
    kind = gate_tile.dtype
    for r in tl.static_range(R):
        y = _normed(each[r], factor, width, eps, kind)
        g = tl.sum(gate_tile.to(tl.float32) * y[None, :], axis=1).to(kind).to(tl.float32)
        u = tl.sum(up_tile.to(tl.float32) * y[None, :], axis=1).to(kind).to(tl.float32)
        opened = (g / (1 + tl.exp(-g))).to(kind).to(tl.float32)
        tl.store(out + r * rows + row, (opened * u).to(kind), mask=row < rows)


@_jit
def _add_linear(
    x, hidden, weight, rows, width,
    R: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row, col, place, there = _tile(rows, width, ROWS, BLOCK)
    tile = tl.load(weight + place, mask=there, other=0.0)
    each = _rows(hidden, col, width, R)
    for r in tl.static_range(R):
        at = x + r * rows + row
        old = tl.load(at, mask=row < rows, other=0.0)
        total = tl.sum(tile.to(tl.float32) * each[r].to(tl.float32)[None, :], axis=1).to(tile.dtype)
        tl.store(at, (old.to(tl.float32) + total.to(tl.float32)).to(old.dtype), mask=row < rows)


@_jit
def _tile(rows, width, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Return a program's rows of a weight, its columns, their offsets, and the mask of valid ones."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    col = tl.arange(0, BLOCK)
    there = (row[:, None] < rows) & (col[None, :] < width)
    return row, col, row[:, None] * width + col[None, :], there


@_jit
def _rows(x, col, width, R: tl.constexpr):
    """Load three rows of x; those beyond R repeat the first and are not used."""
    inside = col < width
    first = tl.load(x + col, mask=inside, other=0.0)
    second, third = first, first
    if R > 1:
        second = tl.load(x + width + col, mask=inside, other=0.0)
    if R > 2:
        third = tl.load(x + 2 * width + col, mask=inside, other=0.0)
    return first, second, third


@_jit
def _normed(x, factor, width, eps, kind: tl.constexpr):
    """Compute the RMS norm in float32, rounded to the gain's dtype before the product, to `kind` after it."""
    wide = x.to(tl.float32)
    scale = 1 / tl.sqrt(tl.sum(wide * wide, axis=0) / width + eps)
    normal = (wide * scale).to(factor.dtype).to(tl.float32)
    return (normal * factor.to(tl.float32)).to(kind).to(tl.float32)


@_jit
def _turned(x, cos, sin, pair):
    first = tl.load(x + 2 * pair).to(tl.float32)
    second = tl.load(x + 2 * pair + 1)
    kind = second.dtype
    second = second.to(tl.float32)
    return tl.interleave(first * cos - second * sin, second * cos + first * sin).to(kind)


@_jit
def _attend(
    projected, cos, sin, position, keys, values, parts, sums, capacity, heads, scale,
    TURNED: tl.constexpr, KEYS: tl.constexpr, SPLITS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Attend from one head of a row to one part of the keys: weighted values, not yet normalized."""
    head, split = tl.program_id(0), tl.program_id(1)
    at = tl.load(position).to(tl.int32)
    slot = at % capacity
    seen = tl.minimum(at + 1, capacity)
    pair, col = tl.arange(0, WIDTH // 2), tl.arange(0, WIDTH)
    if TURNED:
        c = tl.load(cos + at * (WIDTH // 2) + pair)
        s = tl.load(sin + at * (WIDTH // 2) + pair)
        q = _turned(projected + head * WIDTH, c, s, pair).to(tl.float32)
        k = _turned(projected + (heads + head) * WIDTH, c, s, pair)
    else:
        q = tl.load(projected + head * WIDTH + col).to(tl.float32)
        k = tl.load(projected + (heads + head) * WIDTH + col)
    v = tl.load(projected + (2 * heads + head) * WIDTH + col)
    base = head.to(tl.int64) * capacity * WIDTH
    if split == 0:  # no program reads this row from memory now: all have computed it
        tl.store(keys + base + slot * WIDTH + col, k)
        tl.store(values + base + slot * WIDTH + col, v)
    each = (seen + SPLITS - 1) // SPLITS
    start = split * each
    stop = tl.minimum(start + each, seen)
    top = -float("inf")
    total = 0.0
    acc = tl.zeros([WIDTH], dtype=tl.float32)
    for first in range(start, stop, KEYS):
        row = first + tl.arange(0, KEYS)
        there = row < stop
        fresh = (row == slot)[:, None]
        place = base + row[:, None] * WIDTH + col[None, :]
        key = tl.load(keys + place, mask=there[:, None], other=0.0).to(tl.float32)
        value = tl.load(values + place, mask=there[:, None], other=0.0).to(tl.float32)
        key = tl.where(fresh, k.to(tl.float32)[None, :], key)
        value = tl.where(fresh, v.to(tl.float32)[None, :], value)
        score = tl.where(there, tl.sum(key * q[None, :], axis=1) * scale, -float("inf"))
        new_top = tl.maximum(top, tl.max(score, axis=0))
        kept = tl.exp(top - new_top)
        weight = tl.exp(score - new_top)
        total = total * kept + tl.sum(weight, axis=0)
        acc = acc * kept + tl.sum(weight[:, None] * value, axis=0)
        top = new_top
    mine = head * SPLITS + split
    tl.store(parts + mine * WIDTH + col, acc)
    tl.store(sums + mine, top)
    tl.store(sums + heads * SPLITS + mine, total)


@_jit
def _join(parts, sums, out, heads, SPLITS: tl.constexpr, WIDTH: tl.constexpr):
    head = tl.program_id(0)
    split, col = head * SPLITS + tl.arange(0, SPLITS), tl.arange(0, WIDTH)
    tops = tl.load(sums + split)
    weights = tl.exp(tops - tl.max(tops, axis=0))  # 0 where a part has no keys
    total = tl.sum(weights * tl.load(sums + heads * SPLITS + split), axis=0)
    acc = tl.sum(weights[:, None] * tl.load(parts + split[:, None] * WIDTH + col[None, :]), axis=0)
    tl.store(out + head * WIDTH + col, (acc / total).to(out.dtype.element_ty))
