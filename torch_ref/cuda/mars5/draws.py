"""The end of MARS5's captured step, as a Triton kernel: logits in, the next ids and their embeddings out.

Draws are those of torch_ref.cuda.sampling.
"""

# pyright: reportInvalidTypeForm=false
# (Triton reads the kernel's annotations)

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from torch_ref.cuda.sampling import DrawRows, draw_rows
from torch_ref.cuda.triton import jit, tl
from tts_core.mars5.inputs import PENALTIES_ABOVE, SAMPLER
from tts_core.nn.sentinels import Sentinel

WARPS = 16
EMPTY = Sentinel.EMPTY  # a place of `recent` without an id
EMBEDDED = 1024  # numbers of a row that are embedded at once


class Mars5Draws(NamedTuple):
    """State of B texts on the device.

    positions: (B,) int64, of the rows to compute.
    step: (B,) int64, ids so far; -1 for a text that takes no part.
    counts: (B, V) int32, occurrences of ids among `recent`: (B, W) int32, a ring of the last ids or EMPTY.
    window: (B,) int32, places of the ring that a text uses.
    uniform: (1, B) float32, of the step.
    penalties: (B, N) float32, of the end, by step.
    drawn: (B,) int32, -1 where logits were not finite.
    rows: (B, D), the next ones.
    settings: (B, K) float32, with the columns of the sampler.
    """

    positions: Tensor
    step: Tensor
    counts: Tensor
    recent: Tensor
    window: Tensor
    uniform: Tensor
    penalties: Tensor
    drawn: Tensor
    rows: Tensor
    settings: Tensor


class Mars5Drawn(NamedTuple):
    """What a draw writes: ids, their counts, and their rows of `table`, (V, D). ring: places of `recent`."""

    step: Tensor
    counts: Tensor
    recent: Tensor
    window: Tensor
    drawn: Tensor
    rows: Tensor
    table: Tensor
    vocabulary: int
    width: int
    ring: int
    empty: int


def draw_ids(logits: Tensor, table: Tensor, state: Mars5Draws, *, lowest: int, end: int) -> None:
    """Draw the next id of each text.

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
            step=state.step,
            counts=state.counts,
            recent=state.recent,
            window=state.window,
            drawn=state.drawn,
            rows=state.rows,
            table=table,
            vocabulary=table.shape[0],
            width=table.shape[1],
            ring=state.recent.shape[1],
            empty=int(EMPTY),
        ),
        lowest=lowest,
        end=end,
        penalties_above=PENALTIES_ABOVE,
        wide=EMBEDDED,
        warps=WARPS,
    )


@jit
def _drawn(state, text, channel, id, finite, GROUPS: tl.constexpr, WIDE: tl.constexpr):
    """Note the id, count it among the last ones, and embed it."""
    step, counts = tl.load(state.step + text), state.counts + text * state.vocabulary
    tl.store(state.drawn + text, tl.where(finite, id, -1))
    at = state.recent + text * state.ring + step % tl.load(state.window + text)
    leaving = tl.load(at)
    tl.atomic_add(counts + leaving, -1, mask=leaving != state.empty)
    tl.atomic_add(counts + id, 1)
    tl.store(at, id)
    for start in range(0, state.width, WIDE):
        col = start + tl.arange(0, WIDE)
        there = col < state.width
        row = tl.load(state.table + id.to(tl.int64) * state.width + col, mask=there)
        tl.store(state.rows + text * state.width + col, row, mask=there)
