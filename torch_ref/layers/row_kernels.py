"""What a decoder does with a single row, as Triton kernels: few launches, bound by the weights' bytes.

Each does what the plain layers do, with their roundings to the network's dtype, and sums in float32. Every
weight is read once, by programs that hold a few of its rows whole.
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

from torch_ref.layers.cache import RingCache
from torch_ref.layers.rope import Rotation

triton: Any = import_module("triton") if find_spec("triton") else None
tl: Any = import_module("triton.language") if triton else None

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
ROWS, WARPS = 4, 4  # rows of a weight per program, and its warps
KEYS, SPLITS = 64, 8  # keys at once, and parts of the keys per head


def usable(weight: Tensor, head_dim: int) -> bool:
    """Whether the kernels run on a network with this weight: on CUDA, if Triton is installed."""
    whole = head_dim >= 16 and head_dim & (head_dim - 1) == 0
    return triton is not None and weight.is_cuda and weight.dtype in DTYPES and whole


def normed_linear(x: Tensor, gain: Tensor, eps: float, weights: tuple[Tensor, ...]) -> Tensor:
    """Linear maps of RMS-normed x. (D,), weights: one or three of (N, D) → (len(weights), N)."""
    first, second, third = weights if len(weights) == 3 else weights * 3
    rows, width = first.shape
    out = x.new_empty(len(weights), rows)
    grid = triton.cdiv(rows, ROWS), len(weights)
    block = triton.next_power_of_2(width)
    _normed_linear[grid](
        x, gain, eps, first, second, third, out, rows, width, BLOCK=block, ROWS=ROWS, num_warps=WARPS
    )
    return out


def gated_linear(x: Tensor, gain: Tensor, eps: float, gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate y) · (up y) of RMS-normed x, y. (D,), (N, D) each → (N,)."""
    rows, width = gate.shape
    out = x.new_empty(rows)
    block = triton.next_power_of_2(width)
    _gated_linear[(triton.cdiv(rows, ROWS),)](
        x, gain, eps, gate, up, out, rows, width, BLOCK=block, ROWS=ROWS, num_warps=WARPS
    )
    return out


def add_linear(x: Tensor, hidden: Tensor, weight: Tensor) -> None:
    """x += weight hidden, in place. (N,), (D,), (N, D)."""
    rows, width = weight.shape
    block = triton.next_power_of_2(width)
    _add_linear[(triton.cdiv(rows, ROWS),)](
        x, hidden, weight, rows, width, BLOCK=block, ROWS=ROWS, num_warps=WARPS
    )


def attend(projected: Tensor, rotation: Rotation, position: Tensor, cache: RingCache) -> Tensor:
    """Rotate query and key as neighbours, put key and value into the cache, attend to all that are kept.

    projected: (3, H·E), query, key, value.  rotation: tables of all positions.  position: (1,) int64, the
    row's, on the device; `cache.length` is not looked at. → (H·E,).
    """
    assert cache.buffers is not None
    keys, values = cache.buffers
    heads, capacity, width = keys.shape[1:]
    parts = torch.empty(heads, SPLITS, width, dtype=torch.float32, device=keys.device)
    sums = torch.empty(2, heads, SPLITS, dtype=torch.float32, device=keys.device)
    out = projected.new_empty(heads * width)
    scale = 1 / math.sqrt(width)
    sizes = {"KEYS": KEYS, "SPLITS": SPLITS, "WIDTH": width}
    _attend[(heads, SPLITS)](
        projected,
        *rotation,
        position,
        keys,
        values,
        parts,
        sums,
        capacity,
        heads,
        scale,
        **sizes,
        num_warps=4,
    )
    _join[(heads,)](parts, sums, out, heads, SPLITS=SPLITS, WIDTH=width, num_warps=1)
    return out


def _jit(function: Any) -> Any:
    return triton.jit(function) if triton else function


@_jit
def _normed_linear(
    x, gain, eps, first, second, third, out, rows, width, BLOCK: tl.constexpr, ROWS: tl.constexpr
):
    part = tl.program_id(1)
    weight = first
    if part == 1:
        weight = second
    if part == 2:
        weight = third
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    col = tl.arange(0, BLOCK)
    there = (row[:, None] < rows) & (col[None, :] < width)
    # the weight is asked for before the norm needs its sum
    tile = tl.load(weight + row[:, None] * width + col[None, :], mask=there, other=0.0)
    y = _normed(x, gain, eps, col, width)
    total = tl.sum(tile.to(tl.float32) * y[None, :], axis=1)
    tl.store(out + part * rows + row, total.to(out.dtype.element_ty), mask=row < rows)


@_jit
def _gated_linear(x, gain, eps, gate, up, out, rows, width, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    col = tl.arange(0, BLOCK)
    there = (row[:, None] < rows) & (col[None, :] < width)
    place = row[:, None] * width + col[None, :]
    gate_tile = tl.load(gate + place, mask=there, other=0.0)
    up_tile = tl.load(up + place, mask=there, other=0.0)
    y = _normed(x, gain, eps, col, width)
    kind = out.dtype.element_ty
    g = tl.sum(gate_tile.to(tl.float32) * y[None, :], axis=1).to(kind).to(tl.float32)
    u = tl.sum(up_tile.to(tl.float32) * y[None, :], axis=1).to(kind).to(tl.float32)
    opened = (g / (1 + tl.exp(-g))).to(kind).to(tl.float32)
    tl.store(out + row, (opened * u).to(kind), mask=row < rows)


@_jit
def _add_linear(x, hidden, weight, rows, width, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    col = tl.arange(0, BLOCK)
    there = (row[:, None] < rows) & (col[None, :] < width)
    tile = tl.load(weight + row[:, None] * width + col[None, :], mask=there, other=0.0)
    h = tl.load(hidden + col, mask=col < width, other=0.0).to(tl.float32)
    kind = x.dtype.element_ty
    total = tl.sum(tile.to(tl.float32) * h[None, :], axis=1).to(kind).to(tl.float32)
    old = tl.load(x + row, mask=row < rows, other=0.0).to(tl.float32)
    tl.store(x + row, (old + total).to(kind), mask=row < rows)


@_jit
def _normed(x, gain, eps, col, width):
    row = tl.load(x + col, mask=col < width, other=0.0)
    wide = row.to(tl.float32)
    scale = 1 / tl.sqrt(tl.sum(wide * wide, axis=0) / width + eps)
    normed = wide * scale * tl.load(gain + col, mask=col < width, other=0.0)
    return normed.to(row.dtype).to(tl.float32)


@_jit
def _rotated(x, cos, sin, pair):
    first = tl.load(x + 2 * pair).to(tl.float32)
    second = tl.load(x + 2 * pair + 1)
    kind = second.dtype
    second = second.to(tl.float32)
    turned = tl.interleave(first * cos - second * sin, second * cos + first * sin)
    return turned.to(kind)


@_jit
def _attend(
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
    scale,
    KEYS: tl.constexpr,
    SPLITS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    head, split = tl.program_id(0), tl.program_id(1)
    at = tl.load(position).to(tl.int32)
    slot = at % capacity
    seen = tl.minimum(at + 1, capacity)
    pair, col = tl.arange(0, WIDTH // 2), tl.arange(0, WIDTH)
    c = tl.load(cos + at * (WIDTH // 2) + pair)
    s = tl.load(sin + at * (WIDTH // 2) + pair)
    q = _rotated(projected + head * WIDTH, c, s, pair).to(tl.float32)
    k = _rotated(projected + (heads + head) * WIDTH, c, s, pair)
    v = tl.load(projected + (2 * heads + head) * WIDTH + col)
    base = head * capacity * WIDTH
    if split == 0:  # nobody reads this row from memory now: all have it at hand
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
