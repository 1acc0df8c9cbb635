"""Both ends of the diffusion's captured step, as Triton kernels: codes to frames, and logits to codes.

Draws follow torch_ref.mars5.diffusion, two numbers per cell.
"""

# pyright: reportInvalidTypeForm=false
# (Triton reads the kernels' annotations)

from __future__ import annotations

import torch
from torch import Tensor

from torch_ref.cuda.pointwise import standardized
from torch_ref.cuda.triton import jit, pdl, tl, triton
from tts_core.mars5.diffusion import CELL_STEP, CLASS_STEP, HASH_BITS, LAST_SHIFT, NOISE_BITS, ROUNDS


def embed_frames(codes: Tensor, tables: Tensor, positions: Tensor, steps: Tensor, t: Tensor) -> Tensor:
    """Embed codes and add positions and the timestep's vector. → (S, D) float32.

    codes: (S, Q) int64.
    tables: (Q·rows, D / Q).
    positions: (S, D).
    steps: (T, D).
    t: (1,) int64.
    """
    frames, books = codes.shape
    width = positions.shape[1]
    x = torch.empty_like(positions)
    _embed_frames[frames,](
        codes, tables, positions, steps, t, x, books, len(tables) // books, width, tables.shape[1],
        BLOCK=triton.next_power_of_2(width), num_warps=4, **pdl(x.device),
    )  # fmt: skip
    return x


def norm_heads(
    x: Tensor, added: Tensor, norm: tuple[Tensor, Tensor, float], gains: Tensor, biases: Tensor, eps: float
) -> Tensor:
    """Compute the last norm of x + added and, of it, the norm of each head.

    x (R, D) float32, added (R, D).  norm: gain, bias and eps of the last norm.  gains, biases: (H, D) →
    (H, R, D) in the dtype of `added`.
    """
    rows, width = x.shape
    out = added.new_empty(len(gains), rows, width)
    _norm_heads[rows,](
        x, added, *norm, gains, biases, out, rows, width, eps, HEADS=len(gains),
        BLOCK=triton.next_power_of_2(width), num_warps=4, **pdl(x.device),
    )  # fmt: skip
    return out


def draw_cells(
    logits: Tensor,
    codes: Tensor,
    clean: Tensor,
    known: Tensor,
    uniform: Tensor,
    table: Tensor,
    t: Tensor,
    finite: Tensor,
    *,
    first_frame: int,
    first_book: int,
    guidance_w: float,
    x_0_temp: float,
) -> Tensor:
    """Draw a step's cells, as DenoisingStep.compute does. → (S, Q) int64.

    logits: (R, S', Q', K), of cells from the first frame and book on; of any strides, the last one 1.
    codes,
    clean, known: (S, Q).
    uniform: (2, S, Q).
    table: (T, 7).
    t: (1,).
    finite: (), set to False.
    """
    codes = codes.contiguous()
    out = torch.empty_like(codes)
    frames, books = codes.shape
    branch, row, head, class_stride = logits.stride()
    assert class_stride == 1, "a cell's classes are side by side"
    _draw_cells[frames, books](
        logits=logits, codes=codes, clean=clean, known=known.view(torch.uint8), uniform=uniform, table=table,
        t=t, finite=finite.view(torch.uint8), out=out, frames=frames, books=books, first_frame=first_frame,
        first_book=first_book, branch=branch, row=row, head=head, n_classes=logits.shape[3],
        full=float(guidance_w), rest_w=float(1 - guidance_w), x_0_temp=float(x_0_temp),
        GUIDED=len(logits) > 1, NOISE=2**NOISE_BITS, CLASS=CLASS_STEP, CELL=CELL_STEP,
        SHIFT1=ROUNDS[0][0], FACTOR1=ROUNDS[0][1], SHIFT2=ROUNDS[1][0], FACTOR2=ROUNDS[1][1],
        LAST=LAST_SHIFT, UNIT=2.0**-HASH_BITS, BLOCK=triton.next_power_of_2(logits.shape[3]),
        num_warps=4, enable_fp_fusion=False, **pdl(logits.device),
    )  # fmt: skip
    return out


@jit
def _embed_frames(
    codes, tables, positions, steps, t, x, books, rows, width, part, BLOCK: tl.constexpr, PDL: tl.constexpr
):
    frame, col = tl.program_id(0), tl.arange(0, BLOCK)
    inside = col < width
    book = col // part
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    code = tl.load(codes + frame * books + book, mask=inside, other=0)
    entry = tl.load(tables + (book * rows + code) * part + col % part, mask=inside, other=0.0)
    at = tl.load(positions + frame * width + col, mask=inside, other=0.0)
    moment = tl.load(steps + tl.load(t) * width + col, mask=inside, other=0.0)
    tl.store(x + frame * width + col, entry.to(tl.float32) + at + moment, mask=inside)


@jit
def _norm_heads(
    x, added, gain, bias, norm_eps, gains, biases, out, rows, width, eps,
    HEADS: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    row, col = tl.program_id(0), tl.arange(0, BLOCK)
    inside = col < width
    factor, shift = tl.load(gain + col, mask=inside, other=0.0), tl.load(bias + col, mask=inside, other=0.0)
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    at = row.to(tl.int64) * width + col
    more = tl.load(added + at, mask=inside, other=0.0)
    y = tl.load(x + at, mask=inside, other=0.0) + more.to(tl.float32)
    y = standardized(y, inside, width, norm_eps) * factor + shift
    normal = standardized(y, inside, width, eps)
    for head in tl.static_range(HEADS):
        factor = tl.load(gains + head * width + col, mask=inside, other=0.0)
        shift = tl.load(biases + head * width + col, mask=inside, other=0.0)
        address = (head * rows + row).to(tl.int64) * width + col
        tl.store(out + address, (normal * factor + shift).to(more.dtype), mask=inside)


@jit
def _draw_cells(
    logits, codes, clean, known, uniform, table, t, finite, out,
    frames, books, first_frame, first_book, branch, row, head, n_classes, full, rest_w, x_0_temp,
    GUIDED: tl.constexpr, NOISE: tl.constexpr, CLASS: tl.constexpr, CELL: tl.constexpr,
    SHIFT1: tl.constexpr, FACTOR1: tl.constexpr, SHIFT2: tl.constexpr, FACTOR2: tl.constexpr,
    LAST: tl.constexpr, UNIT: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    frame, book = tl.program_id(0), tl.program_id(1)
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    at = table + tl.load(t) * 7  # a row of tts_core.mars5.diffusion.constants
    same, rest, hot, cold = tl.load(at), tl.load(at + 1), tl.load(at + 2), tl.load(at + 3)
    stay, pinned = tl.load(at + 5), tl.load(at + 6)
    cell = frame * books + book
    truth = tl.load(clean + cell).to(tl.int32)
    first, second = tl.load(uniform + cell), tl.load(uniform + frames * books + cell)
    other = (second * (n_classes - 1).to(tl.float32)).to(tl.int32)
    result = tl.where(first < stay, truth, other + (other >= truth).to(tl.int32))
    if (frame >= first_frame) & (book >= first_book):
        classes = tl.arange(0, BLOCK)
        inside = classes < n_classes
        address = logits + (book - first_book).to(tl.int64) * head + (frame - first_frame).to(tl.int64) * row
        scores = tl.load(address + classes, mask=inside, other=0.0).to(tl.float32)
        wrong = scores - scores != 0  # NaN or infinity
        if GUIDED:
            free = tl.load(address + branch + classes, mask=inside, other=0.0)
            wrong |= free.to(tl.float32) - free.to(tl.float32) != 0
            scores = scores * full + free.to(tl.float32) * rest_w
        log_p = _log_softmax(scores / x_0_temp, inside)
        log_p = _log_sum(log_p + same, rest)
        code = tl.load(codes + cell).to(tl.int32)
        log_p = _log_softmax(log_p + tl.where(classes == code, hot, cold), inside)
        bits = (first * NOISE).to(tl.int32) + classes * CLASS
        bits = (bits ^ (bits >> SHIFT1)) * FACTOR1 + (second * NOISE).to(tl.int32) * CELL
        bits = (bits ^ (bits >> SHIFT2)) * FACTOR2
        bits = bits ^ (bits >> LAST)
        gumbel = -tl.log(-_log_below((bits | 1).to(tl.float32) * UNIT))
        drawn = tl.argmax(tl.where(inside, log_p + gumbel, -float("inf")), axis=0).to(tl.int32)
        drawn = tl.minimum(drawn, n_classes - 1)
        result = tl.where(tl.load(known + cell) != 0, result, drawn)
        tl.store(finite, 0, mask=tl.max(wrong.to(tl.int32), axis=0) > 0)
    if book == 0:
        result = tl.where(pinned > 0, truth, result)
    tl.store(out + cell, result.to(tl.int64))


@jit
def _log_softmax(x, inside):
    x = tl.where(inside, x, -float("inf"))
    x = x - tl.max(x, axis=0)
    return x - tl.log(tl.sum(tl.exp(x), axis=0))


@jit
def _log_sum(a, b):
    """Compute log(exp(a) + exp(b))."""
    return tl.maximum(a, b) + tl.log(1 + tl.exp(-tl.abs(a - b)))


@jit
def _log_below(x):
    """Compute log(1 - x), exact for small x: Kahan's correction of the rounding of 1 - x."""
    rest = 1 - x
    return tl.where(rest == 1, -x, tl.log(rest) * tl.div_rn(-x, rest - 1))
