"""The end of MARS5's captured step, as a Triton kernel: logits in, the next id and its embedding out.

Draws are those of torch_ref.cuda.sampling.
"""

# pyright: reportInvalidTypeForm=false
# (Triton reads the kernel's annotations)

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from torch_ref.cuda.sampling import DrawRows, draw_rows
from torch_ref.cuda.triton import jit, tl
from tts_core.mars5.sampling import PENALTIES_ABOVE, SAMPLER

WARPS = 16
EMBEDDED = 1024  # numbers of a row that are embedded at once
EMPTY = -1  # a place of `recent` without an id


class Mars5Draws(NamedTuple):
    """State of B texts on the device.

    step: (B,) int64, ids so far, -1 of a text that draws nothing.
    uniform: (1, B) float32, for this step.
    counts: (B, V) int32, occurrences among `recent`: (B, W) int32, rings of the last ids or EMPTY.
    windows: (B,) int32, places of each ring.
    penalties: (B, S) float32, of the end by step.
    ids: (B,) int64, drawn last, -1 where logits were not finite.
    row: (B, D), the next rows.
    settings: (B, K) float32, with the columns of the sampler.
    """

    step: Tensor
    uniform: Tensor
    counts: Tensor
    recent: Tensor
    windows: Tensor
    penalties: Tensor
    ids: Tensor
    row: Tensor
    settings: Tensor


class Mars5Drawn(NamedTuple):
    """What a draw reads and writes of Mars5Draws, and the ids' rows of `table`, (V, D)."""

    step: Tensor
    counts: Tensor
    recent: Tensor
    windows: Tensor
    ids: Tensor
    row: Tensor
    table: Tensor
    width: int
    vocabulary: int
    places: int
    empty: int


def draw_ids(logits: Tensor, table: Tensor, state: Mars5Draws, *, lowest: int, end: int) -> None:
    """Draw the next id of each text, and embed it.

    logits: (B, V).
    table: (V, D), the ids' embedding.
    lowest: first id that may be drawn.
    end: id of the end.
    """
    draw_rows(
        DrawRows(logits, state.uniform, state.step, counts=state.counts, penalties=state.penalties),
        state.settings,
        SAMPLER,
        _drawn,
        Mars5Drawn(
            step=state.step, counts=state.counts, recent=state.recent, windows=state.windows, ids=state.ids,
            row=state.row, table=table, width=table.shape[1], vocabulary=state.counts.shape[1],
            places=state.recent.shape[1], empty=EMPTY,
        ),
        lowest=lowest,
        end=end,
        penalties_above=PENALTIES_ABOVE,
        wide=EMBEDDED,
        warps=WARPS,
    )  # fmt: skip


@jit
def _drawn(state, text, channel, id, finite, GROUPS: tl.constexpr, WIDE: tl.constexpr):
    """Note the id, count it among the last ones, and embed it."""
    tl.store(state.ids + text, tl.where(finite, id, -1).to(tl.int64))
    slot = state.recent + text * state.places + tl.load(state.step + text) % tl.load(state.windows + text)
    counts, leaving = state.counts + text * state.vocabulary, tl.load(slot)
    tl.atomic_add(counts + leaving, -1, mask=leaving != state.empty)
    tl.atomic_add(counts + id, 1)
    tl.store(slot, id)
    for start in range(0, state.width, WIDE):
        col = start + tl.arange(0, WIDE)
        there = col < state.width
        word = tl.load(state.table + id.to(tl.int64) * state.width + col, mask=there)
        tl.store(state.row + text * state.width + col, word, mask=there)
