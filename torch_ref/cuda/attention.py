"""Attention of single rows to keys and values in memory, as Triton kernels with a position for each row.

The keys of a row are shared by programs, one a block of keys up to `Workspace.splits`, and the last of them
to finish joins their parts: Dao et al., "Flash-Decoding for long-context inference", 2023. Scores, sums and
weighted values are float32.
"""

# pyright: reportInvalidTypeForm=false
# (Triton reads the kernels' annotations)

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from torch_ref.cuda.triton import jit, pdl, processors, tl, triton
from torch_ref.layers.rope import Rotation

# Measured on an H200 in bfloat16, milliseconds of Dia's step: one text 1.015; with half the block 1.033, with
# half the splits 1.032, with twice the splits and programs 1.023, with twice the block and warps and half the
# splits 1.012, which makes 8 texts slower (1.77, not 1.68). 64 texts, whose rows and heads fill the GPU:
# 3.00, with half the block and warps 2.85.
BLOCK = 8192  # numbers of a block of keys; in float32 all heads of a group are counted
TILE_ROWS = 16  # of a tensor core's product, which takes half precision
MOST_SPLITS = 16
PROGRAMS = 2  # per multiprocessor, to begin with
WARPS = 4

Pairing = Literal["halves", "neighbors"]  # which components a rotation turns together


class Workspace(NamedTuple):
    """Memory that attention's programs join their parts in; used by one call at a time.

    parts: (heads, splits, E) float32.
    sums: (2, heads, splits) float32.
    arrivals: int32, zero between calls.
    """

    parts: Tensor
    sums: Tensor
    arrivals: Tensor

    @property
    def splits(self) -> int:
        """Programs that share the keys of a row and key head, at most."""
        return self.parts.shape[1]


def workspace(
    rows: int, heads: int, kv_heads: int, width: int, device: torch.device, *, most: int = MOST_SPLITS
) -> Workspace:
    """Allocate for rows of `heads` heads of `width` numbers, which share `kv_heads` key heads.

    most: programs that may share the keys of a row and key head.
    """
    wanted = max(1, PROGRAMS * processors(device) // (rows * kv_heads))
    splits = min(most, 1 << (wanted.bit_length() - 1))
    return Workspace(
        torch.empty(rows * heads, splits, width, device=device),
        torch.empty(2, rows * heads, splits, device=device),
        torch.zeros(rows * kv_heads, dtype=torch.int32, device=device),
    )


def attend(
    projected: Tensor,
    positions: Tensor,
    keys: Tensor,
    values: Tensor,
    work: Workspace,
    *,
    scale: float,
    rotation: Rotation | None = None,
    pairing: Pairing = "halves",
    angles: Tensor | None = None,
    gains: Tensor | None = None,
    eps: float = 0.0,
) -> Tensor:
    """Put each row's key and value into a ring of them and attend to all that it keeps.

    projected: (R, (H + 2K)·E): queries, keys, values.
    positions: (R,) int64, or (1,) for all.
    keys, values: (R, K, capacity, E), slot = position % capacity.
    rotation: tables of all positions for query and key, taken at `angles`, as many as positions; None takes
    the positions.
    gains: (2, E) float32, of RMS norms of queries and keys before the rotation. → (R, H·E).
    """
    rows, kv_heads, capacity, width = keys.shape
    heads = projected.shape[1] // width - 2 * kv_heads
    out = projected.new_empty(rows, heads * width)
    cos, sin = (projected, projected) if rotation is None else rotation
    _attend[rows * kv_heads, work.splits](
        projected=projected, cos=cos, sin=sin, positions=positions,
        angles=positions if angles is None else angles, keys=keys, values=values, **work._asdict(), out=out,
        gains=cos if gains is None else gains, eps=eps, capacity=capacity, kv_heads=kv_heads,
        split_keys=int(len(positions) > 1), scale=scale,
        NORMED=gains is not None, PAIRS=pairs_of(rotation, pairing), **_sizes(heads // kv_heads, keys, work),
    )  # fmt: skip
    return out


def attend_source(
    queries: Tensor,
    lengths: Tensor,
    positions: Tensor,
    keys: Tensor,
    values: Tensor,
    work: Workspace,
    *,
    scale: float,
    rotation: Rotation | None = None,
    pairing: Pairing = "halves",
) -> Tensor:
    """Attend to keys and values that stay as they are, the first `lengths` of each row.

    queries: (R, H·E).
    lengths, positions: (R,) int64.
    keys, values: (R, K, capacity, E).
    rotation: tables of all positions for the query. → (R, H·E).
    """
    rows, kv_heads, capacity, width = keys.shape
    heads = queries.shape[1] // width
    out = torch.empty_like(queries)
    cos, sin = (queries, queries) if rotation is None else rotation
    _attend_source[rows * kv_heads, work.splits](
        queries=queries, cos=cos, sin=sin, lengths=lengths, positions=positions, keys=keys, values=values,
        **work._asdict(), out=out, capacity=capacity, kv_heads=kv_heads, scale=scale,
        PAIRS=pairs_of(rotation, pairing), **_sizes(heads // kv_heads, keys, work),
    )  # fmt: skip
    return out


def pairs_of(rotation: Rotation | None, pairing: Pairing) -> int:
    """Return a kernel's number of a rotation; 0 for none."""
    return 0 if rotation is None else {"halves": 1, "neighbors": 2}[pairing]


def _sizes(group: int, keys: Tensor, work: Workspace) -> dict[str, Any]:
    width, cores = keys.shape[-1], keys.dtype != torch.float32
    heads = triton.next_power_of_2(group)
    members = max(TILE_ROWS, heads) if cores else heads
    share = 2 if len(keys) * keys.shape[1] > PROGRAMS * processors(keys.device) else 1
    block = BLOCK // share
    return {
        "GROUP": group,
        "HEADS": heads,
        "MEMBERS": members,
        "KEYS": max(TILE_ROWS, block // width) if cores else max(1, block // (members * width)),
        "SPLITS": work.splits,
        "WIDTH": width,
        "CORES": cores,
        "num_warps": WARPS // share,
        **pdl(keys.device),
    }


@jit
def _attend(
    projected, cos, sin, positions, angles, keys, values, parts, sums, arrivals, out, gains, eps,
    capacity, kv_heads, split_keys, scale,
    NORMED: tl.constexpr, PAIRS: tl.constexpr, GROUP: tl.constexpr, HEADS: tl.constexpr,
    MEMBERS: tl.constexpr, KEYS: tl.constexpr, SPLITS: tl.constexpr, WIDTH: tl.constexpr,
    CORES: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    text, split = tl.program_id(0), tl.program_id(1)
    row, shared = text // kv_heads, text % kv_heads
    col, member = tl.arange(0, WIDTH), tl.arange(0, MEMBERS)
    at, angle = (
        tl.load(positions + row * split_keys).to(tl.int32),
        tl.load(angles + row * split_keys).to(tl.int32),
    )
    slot, seen = at % capacity, tl.minimum(at + 1, capacity)
    sharing = tl.minimum(tl.cdiv(seen, KEYS), SPLITS)
    if split >= sharing:
        return
    part = tl.cdiv(seen, sharing)
    start, stop = split * part, tl.minimum(split * part + part, seen)
    base = text.to(tl.int64) * capacity * WIDTH
    # earlier rows are in memory before the previous kernel began; the slot's old row is not read
    key, value = _block(keys, values, base, start, stop, slot, col, KEYS, WIDTH)
    if PDL:
        tl.extra.cuda.gdc_wait()
    whole = GROUP * kv_heads + 2 * kv_heads
    mine = projected + row * whole * WIDTH
    queries = (shared * GROUP + member)[:, None] * WIDTH
    here = (member < GROUP)[:, None]
    q = rotated(mine + queries, gains, eps, cos, sin, angle, col[None, :], here, NORMED, PAIRS, WIDTH)
    own = mine + (GROUP * kv_heads + shared) * WIDTH
    k = rotated(own, gains + WIDTH, eps, cos, sin, angle, col, col < WIDTH, NORMED, PAIRS, WIDTH)
    v = tl.load(own + kv_heads * WIDTH + col)
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
    if split == 0:
        tl.store(keys + base + slot * WIDTH + col, k)
        tl.store(values + base + slot * WIDTH + col, v)
    top, total, acc = _scan(
        q, key, value, keys, values, base, start, stop, slot, col, scale, KEYS, MEMBERS, WIDTH, CORES
    )  # fmt: skip
    if split == 0:  # the row itself
        score = tl.sum(q.to(tl.float32) * k.to(tl.float32)[None, :], axis=1) * scale
        higher = tl.maximum(top, score)
        rescaled, weight = tl.exp(top - higher), tl.exp(score - higher)
        acc = acc * rescaled[:, None] + weight[:, None] * v.to(tl.float32)[None, :]
        total = total * rescaled + weight
        top = higher
    _merge(
        parts, sums, arrivals, out, text, split, sharing, top, total, acc, col, member,
        GROUP, HEADS, SPLITS, WIDTH,
    )  # fmt: skip


@jit
def _attend_source(
    queries, cos, sin, lengths, positions, keys, values, parts, sums, arrivals, out,
    capacity, kv_heads, scale,
    PAIRS: tl.constexpr, GROUP: tl.constexpr, HEADS: tl.constexpr, MEMBERS: tl.constexpr,
    KEYS: tl.constexpr, SPLITS: tl.constexpr, WIDTH: tl.constexpr, CORES: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    text, split = tl.program_id(0), tl.program_id(1)
    row = text // kv_heads
    col, member = tl.arange(0, WIDTH), tl.arange(0, MEMBERS)
    at, seen = tl.load(positions + row).to(tl.int32), tl.load(lengths + row).to(tl.int32)
    sharing = tl.maximum(tl.minimum(tl.cdiv(seen, KEYS), SPLITS), 1)
    if split >= sharing:
        return
    part = tl.cdiv(seen, sharing)
    start, stop = split * part, tl.minimum(split * part + part, seen)
    base = text.to(tl.int64) * capacity * WIDTH
    key, value = _block(keys, values, base, start, stop, -1, col, KEYS, WIDTH)
    if PDL:
        tl.extra.cuda.gdc_wait()
    queries_at = queries + (text * GROUP + member)[:, None] * WIDTH
    here = (member < GROUP)[:, None]
    q = rotated(queries_at, cos, 0.0, cos, sin, at, col[None, :], here, False, PAIRS, WIDTH)
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
    top, total, acc = _scan(
        q, key, value, keys, values, base, start, stop, -1, col, scale, KEYS, MEMBERS, WIDTH, CORES
    )  # fmt: skip
    _merge(
        parts, sums, arrivals, out, text, split, sharing, top, total, acc, col, member,
        GROUP, HEADS, SPLITS, WIDTH,
    )  # fmt: skip


@jit
def rotated(
    x, gain, eps, cos, sin, at, col, inside,
    NORMED: tl.constexpr, PAIRS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Load numbers at x + col, RMS-normed if asked, their pairs rotated by the angles of a position."""
    y = tl.load(x + col, mask=inside, other=0.0)
    wide = y.to(tl.float32)
    scale = 1.0
    if NORMED:
        scale = 1 / tl.sqrt(tl.sum(wide * wide, axis=-1, keep_dims=True) / WIDTH + eps)
        y = (wide * scale * tl.load(gain + col)).to(y.dtype)
    if PAIRS != 0:
        half: tl.constexpr = WIDTH // 2
        if PAIRS == 1:
            partner, pair, first = (col + half) % WIDTH, col % half, col < half
        else:
            partner, pair, first = col ^ 1, col // 2, col % 2 == 0
        other = tl.load(x + partner, mask=inside, other=0.0).to(tl.float32)
        if NORMED:
            other = (other * scale * tl.load(gain + partner)).to(y.dtype).to(tl.float32)
        c, s = tl.load(cos + at * half + pair), tl.load(sin + at * half + pair)
        rotated = y.to(tl.float32) * c + tl.where(first, -other, other) * s
        y = rotated.to(y.dtype)
    return y


@jit
def _block(keys, values, base, first, stop, skip, col, KEYS: tl.constexpr, WIDTH: tl.constexpr):
    """Load keys and values of KEYS rows from `first`, (KEYS, E) each; zeros at `skip` and from `stop` on."""
    row = first + tl.arange(0, KEYS)
    there = ((row < stop) & (row != skip))[:, None]
    at = base + row[:, None] * WIDTH + col[None, :]
    return tl.load(keys + at, mask=there, other=0.0), tl.load(values + at, mask=there, other=0.0)


@jit
def _scan(
    q, key, value, keys, values, base, start, stop, skip, col, scale,
    KEYS: tl.constexpr, MEMBERS: tl.constexpr, WIDTH: tl.constexpr, CORES: tl.constexpr,
):  # fmt: skip
    """Attend a group's queries (G, E) to keys start .. stop - 1: largest scores, sums, weighted values."""
    top = tl.full([MEMBERS], -1e38, dtype=tl.float32)  # finite: exp(top - top) is 1
    total = tl.zeros([MEMBERS], dtype=tl.float32)
    acc = tl.zeros([MEMBERS, WIDTH], dtype=tl.float32)
    for first in range(start, stop, KEYS):
        next_key, next_value = _block(keys, values, base, first + KEYS, stop, skip, col, KEYS, WIDTH)
        row = first + tl.arange(0, KEYS)
        there = (row < stop) & (row != skip)
        if CORES:  # noqa: SIM108
            score = tl.dot(q, tl.trans(key))
        else:
            score = tl.sum(q[:, None, :] * key[None, :, :], axis=2)
        score = tl.where(there[None, :], score * scale, -float("inf"))
        higher = tl.maximum(top, tl.max(score, axis=1))
        rescaled = tl.exp(top - higher)
        weight = tl.exp(score - higher[:, None])
        total = total * rescaled + tl.sum(weight, axis=1)
        if CORES:
            part = tl.dot(weight.to(value.dtype), value)
        else:
            part = tl.sum(weight[:, :, None] * value[None, :, :], axis=1)
        acc = acc * rescaled[:, None] + part
        top = higher
        key, value = next_key, next_value
    return top, total, acc


@jit
def _merge(
    parts, sums, arrivals, out, row, split, sharing, top, total, acc, col, member,
    GROUP: tl.constexpr, HEADS: tl.constexpr, SPLITS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Write a program's part; the last of the `sharing` programs of a place divides their sum."""
    inside = member < GROUP
    head = row * GROUP + member
    kind = out.dtype.element_ty
    if sharing == 1:
        result = (acc / total[:, None]).to(kind)
        tl.store(out + head[:, None] * WIDTH + col[None, :], result, mask=inside[:, None])
    else:
        heads = tl.num_programs(0) * GROUP
        mine = head * SPLITS + split
        tl.store(parts + mine[:, None] * WIDTH + col[None, :], acc, mask=inside[:, None])
        tl.store(sums + mine, top, mask=inside)
        tl.store(sums + heads * SPLITS + mine, total, mask=inside)
        tl.debug_barrier()
        before = tl.atomic_add(arrivals + row, 1, sem="acq_rel", scope="gpu")
        if before == sharing - 1:
            tl.store(arrivals + row, 0)
            # all heads at once: one after the other, each waits for memory
            group, splits = tl.arange(0, HEADS), tl.arange(0, SPLITS)
            out_head = row * GROUP + group
            at = out_head[:, None] * SPLITS + splits[None, :]
            there = (group[:, None] < GROUP) & (splits[None, :] < sharing)
            tops = tl.load(sums + at, mask=there, other=-1e38, cache_modifier=".cg")
            totals = tl.load(sums + heads * SPLITS + at, mask=there, other=0.0, cache_modifier=".cg")
            numbers = tl.load(
                parts + at[:, :, None] * WIDTH + col[None, None, :],
                mask=there[:, :, None], other=0.0, cache_modifier=".cg",
            )  # fmt: skip
            weights = tl.exp(tops - tl.max(tops, axis=1)[:, None])
            whole = tl.sum(weights[:, :, None] * numbers, axis=1) / tl.sum(weights * totals, axis=1)[:, None]
            out_at = out + out_head[:, None] * WIDTH + col[None, :]
            tl.store(out_at, whole.to(kind), mask=(group < GROUP)[:, None])
