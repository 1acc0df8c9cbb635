"""Work between the convolutions of causal decoders, as Triton kernels over (R, T, C), a row a stream.

An operation that looks back takes the last n inputs of the calls before. The kernel that computes its new
inputs writes them after those n, and leaves the last n of all for the next call.
"""

# pyright: reportInvalidTypeForm=false
# (Triton reads the kernels' annotations)

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from torch_ref.cuda.pointwise import standardized
from torch_ref.cuda.triton import jit, pdl, tl, triton
from torch_ref.layers.rope import Rotation

TILE = 2048  # numbers that a program computes
KEYS = 64  # that an attention reads at once


class Activation(NamedTuple):
    """ELU, or Snake: x + sin²(x·slope)·factor, (C,) each."""

    kind: Literal["none", "elu", "snake"] = "none"
    slope: Tensor | None = None
    factor: Tensor | None = None


class Inside(NamedTuple):
    """Steps of late streams that are within their texts; others are zero, as padding is.

    starts, ends: frames before the call and in all, (R,) int64.
    rate: steps of a frame.
    late: steps by which the signal is late.
    short: steps that it lacks at the end.
    """

    starts: Tensor
    ends: Tensor
    rate: int
    late: int
    short: int


class Memory:
    """State of the streams before a call and after it, (R, N) float32; its operations take parts in order."""

    def __init__(self, flat: Tensor):
        self.before, self.after, self._at = flat, torch.empty_like(flat), 0

    def take(self, count: int) -> tuple[Tensor, Tensor]:
        """Return the next operation's numbers before the call and their place after it, (R, count) each."""
        self._at += count
        return self.before[:, self._at - count : self._at], self.after[:, self._at - count : self._at]


def next_inputs(
    x: Tensor,
    bias: Tensor | None,
    skip: Tensor | None,
    activation: Activation,
    count: int,
    memory: Memory,
    out: Tensor,
    *,
    sums: bool = False,
    line: int = 0,
    within: Inside | None = None,
) -> Tensor | None:
    """Compute the activation of x + bias + skip after the `count` inputs that streams carry.

    x: (R, T, s, C), s new inputs a step, of any strides.
    bias: (C,).
    skip: (R·s·T, C), contiguous, or with more steps a row at its end, which another call left so.
    out: (R, count + s·T, C), of any strides, is filled.
    sums: return x + bias + skip, (R·(line + s·T), C); without a line it takes the place of skip.
    line: of these sums, at most `count`, that streams carry, too; they come first.
    within: where sums are not zero.
    """
    rows, steps, phases, channels = x.shape
    length, summed = steps * phases, None
    cells = length if skip is None else len(skip) // rows
    if sums:
        reuses = skip is not None and (cells, line) == (length, 0)
        summed = skip if reuses else x.new_empty(rows * (line + length), channels)
    if x.stride(1) == phases * x.stride(2):  # channels are last: the outputs of all steps are in order
        x, phases = x.view(rows, length, 1, channels), 1
    before, after = memory.take(count * channels)
    line_before, line_after = memory.take(line * channels)
    starts, ends, *rates = within or (None, None, 0, 0, 0)
    block = _dividing(channels)
    tile = max(1, TILE // block)
    _next_inputs[rows * triton.cdiv(count + length, tile), triton.cdiv(channels, block)](
        x, bias, skip, activation.slope, activation.factor, summed, out, before, after, line_before,
        line_after, starts, ends, *x.stride(), *out.stride(), before.stride(0), count, channels, length,
        cells, line, *rates, PHASES=phases, KIND=activation.kind, HELD=count > 0, BIAS=bias is not None,
        SKIP=skip is not None, SUMS=sums, LINE=line > 0, WITHIN=within is not None, TILE=tile, BLOCK=block,
        num_warps=4, enable_fp_fusion=False, **pdl(out.device),
    )  # fmt: skip
    return summed


def depthwise_norm(
    x: Tensor,
    bias: Tensor,
    taps: Tensor,
    shift: Tensor,
    norm: tuple[Tensor, Tensor, float],
    rest: Tensor,
    memory: Memory,
) -> tuple[Tensor, Tensor]:
    """Compute the layer norm of a causal depthwise convolution of x + bias.

    x: (R, T, s, C), as of `next_inputs`; its dtype is that of both results.
    bias: (C,).
    taps, shift: (k, C) and (C,), of the convolution.
    norm: gain, bias and eps.
    rest: (C,).
    → norms, (R·s·T, C), and x + bias + rest.
    """
    rows, steps, phases, channels = x.shape
    count, length = len(taps) - 1, steps * phases
    before, after = memory.take(count * channels)
    out, summed = (x.new_empty(rows * length, channels) for _ in range(2))
    gain, offset, eps = norm
    _depthwise_norm[rows * length,](
        x, bias, taps, shift, gain, offset, rest, summed, out, before, after, *x.stride(), before.stride(0),
        length, eps, COUNT=count, CHANNELS=channels, PHASES=phases, BLOCK=triton.next_power_of_2(channels),
        num_warps=4, **pdl(x.device),
    )  # fmt: skip
    return out, summed


def attended(
    qkv: Tensor, rotation: Rotation, mask: Tensor, heads: int, key_heads: int, window: int, memory: Memory
) -> Tensor:
    """Attend to a window of keys, of which streams carry all but the new ones.

    qkv: (R, T, (H + 2K)·E), contiguous; its queries and keys are rotated in place.
    rotation, mask: of the steps, as in `StreamPositions`.
    → (R·T, H·E).
    """
    rows, length, width = qkv.shape
    head_dim, count = width // (heads + 2 * key_heads), window - 1
    cos, sin = (item.reshape(-1, head_dim // 2).contiguous() for item in rotation)
    before, after = memory.take(2 * count * key_heads * head_dim)
    cells = max(count, length)
    sizes = {"HEADS": heads, "KEY_HEADS": key_heads, "HEAD_DIM": head_dim, "COUNT": count}
    _rotate_and_store[rows * cells,](
        qkv, cos, sin, before, after, before.stride(0), length, cells, len(cos),
        ROTATED=triton.next_power_of_2(heads + key_heads), HALF=triton.next_power_of_2(head_dim // 2),
        KEY_WIDTH=triton.next_power_of_2(key_heads * head_dim), num_warps=4, enable_fp_fusion=False, **sizes,
        **pdl(qkv.device),
    )  # fmt: skip
    out, mask = qkv.new_empty(rows * length, heads * head_dim), mask.contiguous()
    mask_row, blocks = length * (count + length) if mask.dim() > 2 else 0, triton.cdiv(count + length, KEYS)
    _attend[rows * length, heads](
        qkv, before, mask, out, before.stride(0), length, mask_row, head_dim**-0.5, BLOCKS=blocks, BLOCK=KEYS,
        WIDTH=triton.next_power_of_2(head_dim), num_warps=4, **sizes, **pdl(qkv.device),
    )  # fmt: skip
    return out


def entries(codes: Tensor, table: Tensor, semantic: int, dtype: torch.dtype) -> Tensor:
    """Sum the entries of the semantic codes and those of the others. (R, q, T), (Q, V, C) → (R·T, 2C)."""
    codes, (rows, books, frames) = codes.contiguous(), codes.shape
    _, size, width = table.shape
    out = table.new_empty(rows * frames, 2 * width, dtype=dtype)
    _entries[rows * frames,](
        codes, table, out, frames, size, BOOKS=books, SEMANTIC=semantic, WIDTH=width,
        BLOCK=triton.next_power_of_2(width), num_warps=4, **pdl(out.device),
    )  # fmt: skip
    return out


def sound(held: Tensor, weight: Tensor, bias: Tensor, limit: float) -> Tensor:
    """Convolve to one channel, within ±limit. (R, k - 1 + L, C) of any strides, (k, C), (1,) → (R, L)."""
    rows, cells, channels = held.shape
    length = cells - len(weight) + 1
    out = weight.new_empty(rows, length)
    block = triton.next_power_of_2(channels)
    tile = max(1, TILE // block)
    _sound[rows * triton.cdiv(length, tile),](
        held, weight, bias, out, *held.stride(), length, limit, TAPS=len(weight), CHANNELS=channels,
        TILE=tile, BLOCK=block, num_warps=4, **pdl(out.device),
    )  # fmt: skip
    return out


def _dividing(channels: int) -> int:
    """Return a number of channels for a program that leaves few lanes idle."""
    block = triton.next_power_of_2(channels)
    while block > 128 or (block > 32 and channels % block):
        block //= 2
    return block


@jit
def _next_inputs(
    x, bias, skip, slope, factor, summed, out, before, after, line_before, line_after, starts, ends,
    x_row, x_step, x_phase, x_channel, out_row, out_time, out_channel, state_row, count, channels, length,
    cells, line, rate, late, short,
    PHASES: tl.constexpr, KIND: tl.constexpr, HELD: tl.constexpr, BIAS: tl.constexpr, SKIP: tl.constexpr,
    SUMS: tl.constexpr, LINE: tl.constexpr, WITHIN: tl.constexpr, TILE: tl.constexpr, BLOCK: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(count + length, TILE)
    row = (tl.program_id(0) // tiles).to(tl.int64)
    cell = (tl.program_id(0) % tiles * TILE + tl.arange(0, TILE))[:, None]
    channel = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK))[None, :]
    known, time = channel < channels, cell - count
    inside = known & (cell < count + length)
    new = inside & (time >= 0)
    kind = out.dtype.element_ty
    if BIAS:
        added = tl.load(bias + channel, mask=known, other=0.0).to(tl.float32)
    if KIND == "snake":
        a = tl.load(slope + channel, mask=known, other=0.0)
        f = tl.load(factor + channel, mask=known, other=0.0)
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    at = row * x_row + time // PHASES * x_step + time % PHASES * x_phase + channel * x_channel
    y = tl.load(x + at, mask=new, other=0.0).to(tl.float32)
    if BIAS:
        y = (y + added).to(kind).to(tl.float32)
    if SKIP:
        more = tl.load(skip + (row * cells + time) * channels + channel, mask=new, other=0.0)
        y = (more.to(tl.float32) + y).to(kind).to(tl.float32)
    if WITHIN:
        step = tl.load(starts + row) * rate - late + time
        y = tl.where((step >= 0) & (step < tl.load(ends + row) * rate - short), y, 0.0)
    if SUMS:
        index = time + line
        waits, whole = inside & (index >= 0), y
        if LINE:
            carried = row * state_row + index * channels + channel
            first = tl.load(line_before + carried, mask=waits & (time < 0), other=0.0)
            whole = tl.where(time < 0, first, y)
            tl.store(line_after + carried - length * channels, whole, mask=waits & (index >= length))
        tl.store(summed + (row * (length + line) + index) * channels + channel, whole, mask=waits)
    if KIND == "snake":
        s = tl.sin(a * y)
        y = y + f * (s * s)
    if KIND == "elu":
        y = tl.where(y > 0, y, tl.exp(tl.minimum(y, 0.0)) - 1)
    y = y.to(kind)
    if HELD:
        state = row * state_row + cell * channels + channel
        old = tl.load(before + state, mask=inside & (time < 0), other=0.0)
        y = tl.where(time < 0, old.to(kind), y)
        tl.store(after + state - length * channels, y.to(tl.float32), mask=inside & (cell >= length))
    tl.store(out + row * out_row + cell * out_time + channel * out_channel, y, mask=inside)


@jit
def _depthwise_norm(
    x, bias, taps, shift, gain, offset, rest, summed, out, before, after, x_row, x_step, x_phase, x_channel,
    state_row, length, eps,
    COUNT: tl.constexpr, CHANNELS: tl.constexpr, PHASES: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    row, time = (tl.program_id(0) // length).to(tl.int64), tl.program_id(0) % length
    channel = tl.arange(0, BLOCK)
    inside = channel < CHANNELS
    added = tl.load(bias + channel, mask=inside, other=0.0)
    total = tl.load(shift + channel, mask=inside, other=0.0)
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    for tap in tl.static_range(COUNT + 1):
        cell = time + tap
        new = cell - COUNT
        at = row * x_row + new // PHASES * x_step + new % PHASES * x_phase + channel * x_channel
        y = tl.load(x + at, mask=inside & (new >= 0), other=0.0).to(tl.float32) + added
        y = y.to(out.dtype.element_ty).to(tl.float32)
        state = row * state_row + cell * CHANNELS + channel
        if tap < COUNT:
            old = tl.load(before + state, mask=inside & (new < 0), other=0.0)
            y = tl.where(new < 0, old, y)
            leaves = (time == 0) & (cell >= length) & (new < 0)
        else:
            leaves = cell >= length
            more = tl.load(rest + channel, mask=inside, other=0.0)
            tl.store(summed + tl.program_id(0).to(tl.int64) * CHANNELS + channel, y + more, mask=inside)
        tl.store(after + state - length * CHANNELS, y, mask=inside & leaves)
        total += y * tl.load(taps + tap * CHANNELS + channel, mask=inside, other=0.0)
    factor = tl.load(gain + channel, mask=inside, other=0.0)
    normal = standardized(total, inside, CHANNELS, eps) * factor
    normal += tl.load(offset + channel, mask=inside, other=0.0)
    tl.store(out + tl.program_id(0).to(tl.int64) * CHANNELS + channel, normal, mask=inside)


@jit
def _rotate_and_store(
    qkv, cos, sin, before, after, state_row, length, cells, angles,
    HEADS: tl.constexpr, KEY_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, COUNT: tl.constexpr,
    ROTATED: tl.constexpr, HALF: tl.constexpr, KEY_WIDTH: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    row = (tl.program_id(0) // cells).to(tl.int64)
    cell = tl.program_id(0) % cells + tl.minimum(COUNT, length)
    width: tl.constexpr = KEY_HEADS * HEAD_DIM
    channel = tl.arange(0, KEY_WIDTH)
    inside, values = channel < width, COUNT * width
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    to = after + row * state_row + (cell - length) * width
    if cell < COUNT:
        held = before + row * state_row + cell * width + channel
        tl.store(to + channel, tl.load(held, mask=inside, other=0.0), mask=inside)
        tl.store(to + values + channel, tl.load(held + values, mask=inside, other=0.0), mask=inside)
    else:
        step = row * length + cell - COUNT
        head, part = tl.arange(0, ROTATED)[:, None], tl.arange(0, HALF)[None, :]
        half: tl.constexpr = HEAD_DIM // 2
        is_rotated = (head < HEADS + KEY_HEADS) & (part < half)
        angle = step % angles * half + part
        c = tl.load(cos + angle, mask=part < half, other=0.0)
        s = tl.load(sin + angle, mask=part < half, other=0.0)
        at = qkv + step * (HEADS + 2 * KEY_HEADS) * HEAD_DIM
        pair = at + head * HEAD_DIM + part
        first = tl.load(pair, mask=is_rotated, other=0.0).to(tl.float32)
        second = tl.load(pair + half, mask=is_rotated, other=0.0).to(tl.float32)
        first, second = first * c - second * s, second * c + first * s
        tl.store(pair, first, mask=is_rotated)
        tl.store(pair + half, second, mask=is_rotated)
        if cell >= length:
            kind = qkv.dtype.element_ty
            key = to + (head - HEADS) * HEAD_DIM + part
            tl.store(key, first.to(kind).to(tl.float32), mask=is_rotated & (head >= HEADS))
            tl.store(key + half, second.to(kind).to(tl.float32), mask=is_rotated & (head >= HEADS))
            value = tl.load(at + (HEADS + KEY_HEADS) * HEAD_DIM + channel, mask=inside, other=0.0)
            tl.store(to + values + channel, value.to(tl.float32), mask=inside)


@jit
def _attend(
    qkv, before, mask, out, state_row, length, mask_row, scale,
    HEADS: tl.constexpr, KEY_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, COUNT: tl.constexpr,
    BLOCKS: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    step, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    row, time = step // length, step % length
    key_head, part = head // (HEADS // KEY_HEADS), tl.arange(0, WIDTH)
    stride: tl.constexpr = (HEADS + 2 * KEY_HEADS) * HEAD_DIM
    width: tl.constexpr = KEY_HEADS * HEAD_DIM
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    query = tl.load(qkv + step * stride + head * HEAD_DIM + part, mask=part < HEAD_DIM, other=0.0)
    query = query.to(tl.float32) * scale
    top = tl.full([1], float("-inf"), tl.float32)
    total = tl.zeros([1], tl.float32)
    acc = tl.zeros([WIDTH], tl.float32)
    for block in range(BLOCKS):
        cell = block * BLOCK + tl.arange(0, BLOCK)
        inside = cell < COUNT + length
        seen = tl.load(mask + row * mask_row + time * (COUNT + length) + cell, mask=inside, other=0) != 0
        index = (key_head * HEAD_DIM + part)[None, :]
        held = before + row * state_row + cell[:, None] * width + index
        new = qkv + (row * length + cell[:, None] - COUNT) * stride + HEADS * HEAD_DIM + index
        whole = seen[:, None] & (part < HEAD_DIM)[None, :]
        old, fresh = whole & (cell < COUNT)[:, None], whole & (cell >= COUNT)[:, None]
        key = tl.load(held, mask=old, other=0.0) + tl.load(new, mask=fresh, other=0.0).to(tl.float32)
        value = tl.load(held + COUNT * width, mask=old, other=0.0)
        value += tl.load(new + width, mask=fresh, other=0.0).to(tl.float32)
        scores = tl.where(seen, tl.sum(key * query[None, :], axis=1), float("-inf"))
        highest = tl.maximum(top, tl.max(scores, axis=0))
        shift = tl.where(highest == float("-inf"), 0.0, highest)
        weight, faded = tl.exp(scores - shift), tl.exp(top - shift)
        total = total * faded + tl.sum(weight, axis=0)
        acc = acc * faded + tl.sum(weight[:, None] * value, axis=0)
        top = highest
    tl.store(out + step * HEADS * HEAD_DIM + head * HEAD_DIM + part, acc / total, mask=part < HEAD_DIM)


@jit
def _entries(
    codes, table, out, frames, size, BOOKS: tl.constexpr, SEMANTIC: tl.constexpr, WIDTH: tl.constexpr,
    BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    step, part = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    semantic, acoustic = tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32)
    for book in tl.static_range(BOOKS):
        code = tl.load(codes + (step // frames * BOOKS + book) * frames + step % frames).to(tl.int64)
        entry = tl.load(table + (book * size + code) * WIDTH + part, mask=part < WIDTH, other=0.0)
        if book < SEMANTIC:
            semantic += entry
        else:
            acoustic += entry
    tl.store(out + 2 * step * WIDTH + part, semantic, mask=part < WIDTH)
    tl.store(out + (2 * step + 1) * WIDTH + part, acoustic, mask=part < WIDTH)


@jit
def _sound(
    held, weight, bias, out, held_row, held_time, held_channel, length, limit,
    TAPS: tl.constexpr, CHANNELS: tl.constexpr, TILE: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(length, TILE)
    row = (tl.program_id(0) // tiles).to(tl.int64)
    time = tl.program_id(0) % tiles * TILE + tl.arange(0, TILE)
    channel = tl.arange(0, BLOCK)
    inside, known = time < length, channel < CHANNELS
    total = tl.zeros([TILE, BLOCK], tl.float32)
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    for tap in tl.static_range(TAPS):
        factor = tl.load(weight + tap * CHANNELS + channel, mask=known, other=0.0)
        at = row * held_row + (time + tap)[:, None] * held_time + channel[None, :] * held_channel
        y = tl.load(held + at, mask=inside[:, None] & known[None, :], other=0.0).to(tl.float32)
        total += y * factor[None, :]
    y = tl.sum(total, axis=1) + tl.load(bias)
    y = tl.clamp(y, -limit, limit, propagate_nan=tl.PropagateNan.ALL)
    tl.store(out + row * length + time, y, mask=inside)
