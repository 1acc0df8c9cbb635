"""Both ends of Dia's captured step, as Triton kernels: the embedding of a row, its draw, and the grid's rule.

Draws are those of torch_ref.cuda.sampling, rows follow tts_core.dia.grid.
"""

# pyright: reportInvalidTypeForm=false
# (Triton reads the kernels' annotations)

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from torch_ref.cuda.sampling import DrawRows, draw_rows
from torch_ref.cuda.triton import jit, pdl, tl, triton
from tts_core.dia.config import DiaConfig
from tts_core.dia.grid import FREE
from tts_core.dia.options import SAMPLER_0626, SAMPLER_V01

EMBEDDED = 512  # numbers of a row that one program embeds


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
    settings: (B, N) float32, with the columns of the sampler.
    arrivals: (B,), zero between steps.
    own: (B, 2), rows of each text with guidance.
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
    own: Tensor


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
        filled=rows.filled, cells=rows.cells, table=table, x=x, positions=positions, capacity=capacity,
        vocabulary=len(table) // channels, width=width, texts=texts, COPIES=len(x) // texts,
        CHANNELS=channels, BLOCK=EMBEDDED, num_warps=4, **pdl(x.device),
    )  # fmt: skip


class DiaDrawn(NamedTuple):
    """What a draw writes: the text's ids, then by DelayGrid.accept its grid."""

    delays: Tensor
    filled: Tensor
    prompt: Tensor
    limit: Tensor
    ends: Tensor
    cells: Tensor
    tick: Tensor
    drawn: Tensor
    arrivals: Tensor
    drawn_ring: int
    capacity: int
    channels: int
    texts: int
    eos: int
    pad: int
    free: int


def draw(
    logits: Tensor, noise: Tensor, delays: Tensor, allowed: Tensor, rows: DiaDraws, config: DiaConfig
) -> None:
    """Draw the next row of each text and put it into its grid.

    logits: (R, C·V).
    noise: (ring, B, C, V) float32, log(-log(u)) of uniform numbers, by tick.
    delays: (C,) int32.
    allowed: (C, V) int8.
    """
    texts, capacity, channels = rows.cells.shape
    state = {name: column for name, column in rows._asdict().items() if name not in ("settings", "own")}
    draw_rows(
        DrawRows(logits, noise, rows.tick, rows.own if len(logits) > texts else None, allowed),
        rows.settings,
        SAMPLER_V01 if config.cross_rope else SAMPLER_0626,
        _drawn,
        DiaDrawn(
            **state, delays=delays, drawn_ring=len(rows.drawn), capacity=capacity, channels=channels,
            texts=texts, eos=config.eos_token_id, pad=config.pad_token_id, free=int(FREE),
        ),
        channels=channels,
        end=config.eos_token_id,
        wide=channels,
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
        copy_row = copy * texts + text
        tl.store(x + copy_row * width + col, total.to(x.dtype.element_ty), mask=col < width)
        if tl.program_id(1) == 0:
            tl.store(positions + copy_row, at.to(tl.int64))


@jit
def _drawn(state, text, channel, id, finite, GROUPS: tl.constexpr, WIDE: tl.constexpr):
    """Note a channel's id, -1 where logits are not finite; the last channel of a text fills its grid."""
    now = tl.load(state.tick + text)
    log = state.drawn + ((now % state.drawn_ring) * state.texts + text) * state.channels
    tl.store(log + channel, tl.where(finite, id, -1))
    tl.debug_barrier()
    before = tl.atomic_add(state.arrivals + text, 1, sem="acq_rel", scope="gpu")
    if before == state.channels - 1:
        tl.store(state.arrivals + text, 0)
        _accept(state, log, text, WIDE)


@jit
def _accept(state, log, text, WIDE: tl.constexpr):
    """Apply the rule of DelayGrid.accept to one text."""
    channel, eos = tl.arange(0, WIDE), state.eos
    inside = channel < state.channels
    ids = tl.load(log + channel, mask=inside, other=0, cache_modifier=".cg")
    lead = tl.load(log, cache_modifier=".cg")
    delay = tl.load(state.delays + channel, mask=inside, other=0)
    row, before = tl.load(state.filled + text), tl.load(state.prompt + text)
    most, end = tl.load(state.limit + text), tl.load(state.ends + text)
    speaking = (row > before) & (end < 0)
    end = tl.where(speaking & ((lead == eos) | (row > before + most)), row, end)
    since = tl.where(end < 0, -1, row - end)
    ids = tl.where(since == delay, eos, tl.where(since > delay, state.pad, ids))
    at = state.cells + (text * state.capacity + row) * state.channels + channel
    forced = tl.load(at, mask=inside, other=0)
    tl.store(at, tl.where(forced == state.free, tl.maximum(ids, 0), forced), mask=inside)
    tl.store(state.ends + text, end)
    following = tl.minimum(row + 1, state.capacity - 1)  # rows past the grid's end are dropped
    tl.store(state.filled + text, tl.where(most < 0, 1, following))
    tl.store(state.tick + text, tl.load(state.tick + text) + 1)
