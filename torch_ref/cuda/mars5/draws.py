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
    """State of one text on the device.

    position: (1,) int64, of the row to compute.
    count: (1,) int64, ids so far.
    counts: (V,) int32, their occurrences among `recent`: (window,) int32, a ring of the last ids or EMPTY.
    uniform, penalties: (N,) float32, by count.
    drawn: (N,) int32, by count, -1 where logits were not finite.
    row: (1, D), the next row.
    settings: (1, K) float32, with the columns of the sampler.
    """

    position: Tensor
    count: Tensor
    counts: Tensor
    recent: Tensor
    uniform: Tensor
    penalties: Tensor
    drawn: Tensor
    row: Tensor
    settings: Tensor


class Mars5Drawn(NamedTuple):
    """What a draw writes: the state of Mars5Draws, and the id's row of `table`, (V, D)."""

    position: Tensor
    count: Tensor
    counts: Tensor
    recent: Tensor
    drawn: Tensor
    row: Tensor
    table: Tensor
    width: int
    window: int
    empty: int


def draw_id(logits: Tensor, table: Tensor, state: Mars5Draws, *, lowest: int, end: int) -> None:
    """Draw the next id and advance the state.

    logits: (1, V).
    table: (V, D), the ids' embedding.
    lowest: first id that may be drawn.
    end: id of the end.
    """
    draw_rows(
        DrawRows(
            logits, state.uniform[:, None], state.count, counts=state.counts, penalties=state.penalties
        ),
        state.settings,
        SAMPLER,
        _drawn,
        Mars5Drawn(
            position=state.position, count=state.count, counts=state.counts, recent=state.recent,
            drawn=state.drawn, row=state.row, table=table, width=table.shape[1],
            window=len(state.recent), empty=EMPTY,
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
    now = tl.load(state.count)
    tl.store(state.drawn + now, tl.where(finite, id, -1))
    slot = state.recent + now % state.window
    leaving = tl.load(slot)
    tl.atomic_add(state.counts + leaving, -1, mask=leaving != state.empty)
    tl.atomic_add(state.counts + id, 1)
    tl.store(slot, id)
    for start in range(0, state.width, WIDE):
        col = start + tl.arange(0, WIDE)
        there = col < state.width
        tl.store(state.row + col, tl.load(state.table + id * state.width + col, mask=there), mask=there)
    tl.store(state.position, tl.load(state.position) + 1)
    tl.store(state.count, now + 1)
