"""Both ends of Dia's captured step, as Triton kernels: the embedding of a row, its draw, and the grid's rule.

Draws follow torch_ref.dia.sampling, rows tts_core.dia.grid.
"""

# pyright: reportInvalidTypeForm=false
# (Triton reads the kernels' annotations)

from __future__ import annotations

from dataclasses import fields
from typing import NamedTuple

from torch import Tensor

from torch_ref.cuda.filters import top_k_kept, top_p_kept
from torch_ref.cuda.triton import columns, jit, pdl, tl, triton
from tts_core.dia.config import DiaConfig
from tts_core.dia.grid import FREE
from tts_core.dia.sampling import V01_EOS_SCALE, DiaSampling

EMBEDDED = 512  # numbers of a row that one program embeds
DRAW_WARPS = 8
SETTINGS = sorted(one.name for one in fields(DiaSampling))  # columns, in the order of `numbers`


class DiaProgress(NamedTuple):
    """Numbers of a text, or (B,) of all: the first of DiaDraws."""

    filled: Tensor | int
    prompt: Tensor | int
    limit: Tensor | int
    ends: Tensor | int


class DiaDraws(NamedTuple):
    """State of B texts on the device; int32 except `settings`.

    filled: (B,), rows that are known.
    prompt, limit: (B,), frames before speech and at most of it; limit -1 where there is no text.
    ends: (B,), the row of channel 0's EOS, or -1.
    cells: (B, rows, C), forced ids or FREE.
    tick: (B,), steps since the start, the same for all.
    drawn: (ring, B, C), the draws of the last steps, -1 where logits were not finite.
    settings: (B, 4) float32, the columns SETTINGS.
    arrivals: (B,), zero between steps.
    """

    filled: Tensor
    prompt: Tensor
    limit: Tensor
    ends: Tensor
    cells: Tensor
    tick: Tensor
    drawn: Tensor
    settings: Tensor
    arrivals: Tensor


def embed(rows: DiaDraws, table: Tensor, x: Tensor, positions: Tensor) -> None:
    """Embed the last known row of each text, and write its position, for the conditional rows and again for
    those after them.

    table: (C·V, D).
    x: (R, D).
    positions: (R,) int64.
    """
    texts, capacity, channels = rows.cells.shape
    width = table.shape[1]
    grid = texts, triton.cdiv(width, EMBEDDED)
    _embed[grid](
        rows.filled, rows.cells, table, x, positions, capacity, len(table) // channels, width, texts,
        COPIES=len(x) // texts, CHANNELS=channels, BLOCK=EMBEDDED, num_warps=4, **pdl(x.device),
    )  # fmt: skip


def draw(logits: Tensor, noise: Tensor, delays: Tensor, rows: DiaDraws, config: DiaConfig) -> None:
    """Draw the next row of each text and put it into its grid.

    logits: (R, C·V).
    noise: (ring, B, C, V) float32, log(-log(u)) of uniform numbers, by tick.
    delays: (C,) int32.
    """
    texts, capacity, channels = rows.cells.shape
    vocabulary = logits.shape[1] // channels
    _draw[texts, channels](
        logits=logits, noise=noise, delays=delays, **rows._asdict(),
        noise_ring=len(noise), drawn_ring=len(rows.drawn), capacity=capacity, vocabulary=vocabulary,
        texts=texts, eos=config.eos_token_id, pad=config.pad_token_id,
        unconditional=logits.stride(0) * texts * (len(logits) > texts), **columns(SETTINGS),
        V01=config.cross_rope, EOS_SCALE=V01_EOS_SCALE, FREE=FREE, CHANNELS=channels,
        WIDE=triton.next_power_of_2(channels), BLOCK=triton.next_power_of_2(vocabulary),
        num_warps=DRAW_WARPS, enable_fp_fusion=False, **pdl(logits.device),
    )  # fmt: skip


@jit
def _embed(
    filled, cells, table, x, positions, capacity, vocabulary, width, texts,
    COPIES: tl.constexpr, CHANNELS: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    text = tl.program_id(0)
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    at = tl.load(filled + text) - 1
    ids = cells + (text * capacity + at) * CHANNELS
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for channel in tl.static_range(CHANNELS):
        row = (channel * vocabulary + tl.load(ids + channel)).to(tl.int64)
        total += tl.load(table + row * width + col, mask=col < width, other=0.0).to(tl.float32)
    for copy in tl.static_range(COPIES):
        place = copy * texts + text
        tl.store(x + place * width + col, total.to(x.dtype.element_ty), mask=col < width)
        if tl.program_id(1) == 0:
            tl.store(positions + place, at.to(tl.int64))


@jit
def _draw(
    logits, noise, delays, filled, prompt, limit, ends, cells, tick, drawn, settings, arrivals,
    noise_ring, drawn_ring, capacity, vocabulary, texts, eos, pad, unconditional,
    CFG_SCALE: tl.constexpr, TEMPERATURE: tl.constexpr, TOP_K: tl.constexpr, TOP_P: tl.constexpr,
    SETTINGS: tl.constexpr, V01: tl.constexpr, EOS_SCALE: tl.constexpr, FREE: tl.constexpr,
    CHANNELS: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Draw one channel of one text. unconditional: the distance to its other row of logits."""
    text, channel = tl.program_id(0), tl.program_id(1)
    ids = tl.arange(0, BLOCK)
    inside = ids < vocabulary
    now = tl.load(tick + text)
    own = settings + SETTINGS * text
    cfg_scale, temperature = tl.load(own + CFG_SCALE), tl.load(own + TEMPERATURE)
    top_k, top_p = tl.load(own + TOP_K).to(tl.int32), tl.load(own + TOP_P)
    place = ((now % noise_ring) * texts + text) * CHANNELS + channel
    gumbel = tl.load(noise + place.to(tl.int64) * vocabulary + ids, mask=inside, other=0.0)
    if PDL:
        tl.extra.cuda.gdc_wait()
    at = logits + (text * CHANNELS + channel) * vocabulary + ids
    cond = tl.load(at, mask=inside, other=0.0).to(tl.float32)
    uncond = tl.load(at + unconditional, mask=inside, other=0.0).to(tl.float32)
    numbers = (cond - cond == 0) & (uncond - uncond == 0)  # false for NaN and infinity
    finite = tl.min(tl.where(inside, numbers.to(tl.int32), 1), axis=0)
    guided = tl.where(inside, cond + cfg_scale * (cond - uncond), -float("inf"))
    forbidden = (ids > eos) | ((ids == eos) & (channel > 0)) | (ids >= vocabulary)
    if V01:
        scores = tl.where((ids == eos) & (channel == 0), guided * EOS_SCALE, guided)
        scores = tl.where(forbidden, -float("inf"), scores)
    else:
        allowed = tl.where(forbidden, -float("inf"), cond)
        scores = top_k_kept(guided, allowed, top_k, vocabulary)
        # where guidance picks forbidden ids only, every allowed id is a candidate
        scores = tl.where(tl.max(scores, axis=0) == -float("inf"), allowed, scores)
    if temperature > 0:
        scores = tl.div_rn(scores, temperature)
        ends_now = tl.argmax(scores, axis=0) == eos
        if V01:  # noqa: SIM108
            out = (ids == eos) & (ends_now == 0)
        else:
            out = tl.where(ends_now, ids < eos, ids == eos)
        scores = tl.where(out, -float("inf"), scores)
        scores = top_k_kept(scores, scores, top_k, vocabulary)
        scores = top_p_kept(scores, top_p)
        scores = scores - gumbel
    best = tl.argmax(tl.where(inside, scores, -float("inf")), axis=0).to(tl.int32)
    log = drawn + ((now % drawn_ring) * texts + text) * CHANNELS
    tl.store(log + channel, tl.where(finite == 1, best, -1))
    tl.debug_barrier()
    before = tl.atomic_add(arrivals + text, 1, sem="acq_rel", scope="gpu")
    if before == CHANNELS - 1:
        tl.store(arrivals + text, 0)
        _accept(
            log, delays, filled, prompt, limit, ends, cells, tick, text, capacity, eos, pad,
            FREE, CHANNELS, WIDE,
        )  # fmt: skip


@jit
def _accept(
    log, delays, filled, prompt, limit, ends, cells, tick, text, capacity, eos, pad,
    FREE: tl.constexpr, CHANNELS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Apply the rule of DelayGrid.accept to one text."""
    channel = tl.arange(0, WIDE)
    inside = channel < CHANNELS
    ids = tl.load(log + channel, mask=inside, other=0, cache_modifier=".cg")
    lead = tl.load(log, cache_modifier=".cg")
    delay = tl.load(delays + channel, mask=inside, other=0)
    row, before, most = tl.load(filled + text), tl.load(prompt + text), tl.load(limit + text)
    end = tl.load(ends + text)
    speaking = (row > before) & (end < 0)
    end = tl.where(speaking & ((lead == eos) | (row > before + most)), row, end)
    since = tl.where(end < 0, -1, row - end)
    ids = tl.where(since == delay, eos, tl.where(since > delay, pad, ids))
    at = cells + (text * capacity + row) * CHANNELS + channel
    forced = tl.load(at, mask=inside, other=0)
    tl.store(at, tl.where(forced == FREE, tl.maximum(ids, 0), forced), mask=inside)
    tl.store(ends + text, end)
    following = tl.minimum(row + 1, capacity - 1)  # rows past the grid's end are dropped
    tl.store(filled + text, tl.where(most < 0, 1, following))
    tl.store(tick + text, tl.load(tick + text) + 1)
