"""Triton kernels for one token of a few rows: every weight is read once, and little else is launched.

A product's norm, gate, residual and destination are part of its kernel. All sums are float32. Dao et al.,
"Flash-Decoding for long-context inference", 2023, for the attention in shares.
"""

# pyright: reportInvalidTypeForm=false
# (Triton reads the kernels' annotations)

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

triton: Any = import_module("triton") if find_spec("triton") else None
tl: Any = import_module("triton.language") if triton else None


def _jit(function: Any) -> Any:
    return triton.jit(function) if triton else function


@_jit
def products(
    x,
    gain,
    weight,
    gated,
    n,
    rows,
    columns: tl.constexpr,
    eps,
    R: tl.constexpr,
    NORM: tl.constexpr,
    GATED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Rows n of weight (rows, columns) times each of R rows of x, normed and scaled by `gain` if NORM.

    → three vectors like n, those beyond R are zero; if GATED silu of them times the rows of `gated`.
    """
    places = tl.arange(0, BLOCK)
    sum0 = tl.zeros([n.shape[0], BLOCK], tl.float32)
    sum1 = tl.zeros([n.shape[0], BLOCK], tl.float32)
    sum2 = tl.zeros([n.shape[0], BLOCK], tl.float32)
    gate0 = tl.zeros([n.shape[0], BLOCK], tl.float32)
    gate1 = tl.zeros([n.shape[0], BLOCK], tl.float32)
    gate2 = tl.zeros([n.shape[0], BLOCK], tl.float32)
    square0 = tl.zeros([BLOCK], tl.float32)
    square1 = tl.zeros([BLOCK], tl.float32)
    square2 = tl.zeros([BLOCK], tl.float32)
    for start in tl.static_range(0, columns, BLOCK):
        k = start + places
        inside = k < columns
        at = n[:, None].to(tl.int64) * columns + k[None, :]
        there = (n < rows)[:, None] & inside[None, :]
        w = tl.load(weight + at, mask=there, other=0.0)  # asked for before anything waits
        if GATED:
            v = tl.load(gated + at, mask=there, other=0.0)
        g = tl.load(gain + k, mask=inside, other=0.0).to(tl.float32) if NORM else 1.0
        x0 = tl.load(x + k, mask=inside, other=0.0).to(tl.float32)
        square0 += x0 * x0
        sum0 += w.to(tl.float32) * (x0 * g)[None, :]
        if GATED:
            gate0 += v.to(tl.float32) * (x0 * g)[None, :]
        if R > 1:
            x1 = tl.load(x + columns + k, mask=inside, other=0.0).to(tl.float32)
            square1 += x1 * x1
            sum1 += w.to(tl.float32) * (x1 * g)[None, :]
            if GATED:
                gate1 += v.to(tl.float32) * (x1 * g)[None, :]
        if R > 2:
            x2 = tl.load(x + 2 * columns + k, mask=inside, other=0.0).to(tl.float32)
            square2 += x2 * x2
            sum2 += w.to(tl.float32) * (x2 * g)[None, :]
            if GATED:
                gate2 += v.to(tl.float32) * (x2 * g)[None, :]
    y0 = tl.sum(sum0, 1)
    y1 = tl.sum(sum1, 1)
    y2 = tl.sum(sum2, 1)
    z0 = tl.sum(gate0, 1)
    z1 = tl.sum(gate1, 1)
    z2 = tl.sum(gate2, 1)
    if NORM:  # a norm's quotient is the same for the whole row: it is left for last
        scale0 = tl.rsqrt(tl.sum(square0) / columns + eps)
        scale1 = tl.rsqrt(tl.sum(square1) / columns + eps)
        scale2 = tl.rsqrt(tl.sum(square2) / columns + eps)
        y0, y1, y2 = y0 * scale0, y1 * scale1, y2 * scale2
        z0, z1, z2 = z0 * scale0, z1 * scale1, z2 * scale2
    if GATED:
        y0, y1, y2 = y0 * tl.sigmoid(y0) * z0, y1 * tl.sigmoid(y1) * z1, y2 * tl.sigmoid(y2) * z2
    return y0, y1, y2


@_jit
def project(
    x, gain, weight, queries, keys, values, position, capacity, eps,
    width: tl.constexpr, head: tl.constexpr, R: tl.constexpr, N: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Queries (R, width) of normed x, and keys and values (R, heads, capacity, head) at `position`."""
    n = tl.program_id(0) * N + tl.arange(0, N)
    y0, y1, y2 = products(x, gain, weight, weight, n, 3 * width, width, eps, R, True, False, BLOCK)
    part = n // width
    at = n % width
    row = width * capacity  # from one row's keys to the next one's
    slot = (at // head * capacity + tl.load(position)) * head + at % head
    tl.store(queries + at, y0, mask=part == 0)
    tl.store(keys + slot, y0, mask=part == 1)
    tl.store(values + slot, y0, mask=part == 2)
    if R > 1:
        tl.store(queries + width + at, y1, mask=part == 0)
        tl.store(keys + row + slot, y1, mask=part == 1)
        tl.store(values + row + slot, y1, mask=part == 2)
    if R > 2:
        tl.store(queries + 2 * width + at, y2, mask=part == 0)
        tl.store(keys + 2 * row + slot, y2, mask=part == 1)
        tl.store(values + 2 * row + slot, y2, mask=part == 2)


@_jit
def attend(
    queries, keys, values, position, sums, peaks, totals, capacity, scale,
    head: tl.constexpr, SHARES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One row's head over its share of the positions up to `position`: weighted values, not yet divided."""
    row = tl.program_id(0)
    length = tl.load(position) + 1
    share = tl.cdiv(tl.cdiv(length, SHARES), BLOCK) * BLOCK
    first = tl.program_id(1) * share
    last = tl.minimum(first + share, length)
    e = tl.arange(0, head)
    q = tl.load(queries + row * head + e).to(tl.float32) * scale
    top = tl.full([], float("-inf"), tl.float32)
    total = tl.full([], 0.0, tl.float32)
    acc = tl.zeros([head], tl.float32)
    for start in range(first, last, BLOCK):
        s = start + tl.arange(0, BLOCK)
        inside = s < last
        at = (row.to(tl.int64) * capacity + s)[:, None] * head + e[None, :]
        k = tl.load(keys + at, mask=inside[:, None], other=0.0).to(tl.float32)
        v = tl.load(values + at, mask=inside[:, None], other=0.0).to(tl.float32)
        scores = tl.where(inside, tl.sum(k * q[None, :], 1), float("-inf"))
        peak = tl.maximum(top, tl.max(scores, 0))
        kept = tl.exp(top - peak)
        weights = tl.exp(scores - peak)
        acc = acc * kept + tl.sum(weights[:, None] * v, 0)
        total = total * kept + tl.sum(weights, 0)
        top = peak
    part = row * SHARES + tl.program_id(1)
    tl.store(sums + part * head + e, acc)
    tl.store(peaks + part, top)
    tl.store(totals + part, total)


@_jit
def join(sums, peaks, totals, out, head: tl.constexpr, SHARES: tl.constexpr):
    """The shares of one row's head as one."""
    row = tl.program_id(0)
    part = row * SHARES + tl.arange(0, SHARES)
    e = tl.arange(0, head)
    peak = tl.load(peaks + part)
    weights = tl.exp(peak - tl.max(peak, 0))
    total = tl.sum(tl.load(totals + part) * weights, 0)
    acc = tl.load(sums + part[:, None] * head + e[None, :])
    tl.store(out + row * head + e, tl.sum(acc * weights[:, None], 0) / total)


@_jit
def add_linear(
    x, weight, residual, rows, columns: tl.constexpr, R: tl.constexpr, N: tl.constexpr, BLOCK: tl.constexpr
):
    """residual (R, rows) += x weightᵀ, in place."""
    n = tl.program_id(0) * N + tl.arange(0, N)
    inside = n < rows
    y0, y1, y2 = products(x, x, weight, weight, n, rows, columns, 0.0, R, False, False, BLOCK)
    tl.store(residual + n, tl.load(residual + n, mask=inside).to(tl.float32) + y0, mask=inside)
    if R > 1:
        at = residual + rows + n
        tl.store(at, tl.load(at, mask=inside).to(tl.float32) + y1, mask=inside)
    if R > 2:
        at = residual + 2 * rows + n
        tl.store(at, tl.load(at, mask=inside).to(tl.float32) + y2, mask=inside)


@_jit
def gate_linear(
    x, gain, weight, gated, out, rows, eps,
    columns: tl.constexpr, R: tl.constexpr, N: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """out (R, rows) = silu(x weightᵀ) · (x gatedᵀ) of normed x."""
    n = tl.program_id(0) * N + tl.arange(0, N)
    inside = n < rows
    y0, y1, y2 = products(x, gain, weight, gated, n, rows, columns, eps, R, True, True, BLOCK)
    tl.store(out + n, y0, mask=inside)
    if R > 1:
        tl.store(out + rows + n, y1, mask=inside)
    if R > 2:
        tl.store(out + 2 * rows + n, y2, mask=inside)


@_jit
def norm_linear(
    x, gain, weight, out, rows, eps,
    columns: tl.constexpr, R: tl.constexpr, N: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """out (R, rows) = x weightᵀ of normed x."""
    n = tl.program_id(0) * N + tl.arange(0, N)
    inside = n < rows
    y0, y1, y2 = products(x, gain, weight, weight, n, rows, columns, eps, R, True, False, BLOCK)
    tl.store(out + n, y0, mask=inside)
    if R > 1:
        tl.store(out + rows + n, y1, mask=inside)
    if R > 2:
        tl.store(out + 2 * rows + n, y2, mask=inside)
