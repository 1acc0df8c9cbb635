"""The end of MARS5's captured step, as a Triton kernel: logits in, the next id and its embedding out.

Draws follow torch_ref.mars5.sampling.
"""

# pyright: reportInvalidTypeForm=false
# (Triton reads the kernel's annotations)

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from torch_ref.cuda.filters import top_k_kept, top_p_kept
from torch_ref.cuda.triton import jit, pdl, tl, triton
from tts_core.mars5.options import Mars5Options
from tts_core.mars5.sampling import PENALTIES_ABOVE, TYPICAL_OFF

WARPS = 16
EMPTY = -1  # a place of `recent` without an id


class Mars5Draws(NamedTuple):
    """State of one text on the device.

    position: (1,) int64, of the row to compute.
    count: (1,) int64, ids so far.
    counts: (V,) int32, their occurrences among `recent`: (window,) int32, a ring of the last ids or EMPTY.
    uniform, penalties: (N,) float32, by count.
    drawn: (N,) int32, by count, -1 where logits were not finite.
    row: (1, D), the next row.
    """

    position: Tensor
    count: Tensor
    counts: Tensor
    recent: Tensor
    uniform: Tensor
    penalties: Tensor
    drawn: Tensor
    row: Tensor


def draw_id(
    logits: Tensor, table: Tensor, state: Mars5Draws, options: Mars5Options, *, lowest: int, end: int
) -> None:
    """Draw the next id and advance the state.

    logits: (1, V).
    table: (V, D), the ids' embedding.
    lowest, end: ids, as in `log_probabilities`.
    """
    vocabulary, width = table.shape
    block = triton.next_power_of_2(vocabulary - lowest)
    _draw_id[1,](
        logits=logits, table=table, **state._asdict(), vocabulary=vocabulary, width=width,
        window=len(state.recent), lowest=lowest, end=end, freq=float(options.freq_penalty),
        presence=float(options.presence_penalty), temperature=float(options.temperature),
        top_k=options.top_k, top_p=float(options.top_p), typical=float(options.typical_p),
        ABOVE=PENALTIES_ABOVE, OFF=TYPICAL_OFF, EMPTY=EMPTY, BLOCK=block, num_warps=WARPS,
        enable_fp_fusion=False, **pdl(logits.device),
    )  # fmt: skip


@jit
def _draw_id(
    logits, table, position, count, counts, recent, uniform, penalties, drawn, row,
    vocabulary, width, window, lowest, end, freq, presence, temperature, top_k, top_p, typical,
    ABOVE: tl.constexpr, OFF: tl.constexpr, EMPTY: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    place = tl.arange(0, BLOCK)
    ids = lowest + place
    inside = ids < vocabulary
    now = tl.load(count)
    seen = tl.load(counts + ids, mask=inside & (now > ABOVE), other=0).to(tl.float32)
    number, penalty = tl.load(uniform + now), tl.load(penalties + now)
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    scores = tl.load(logits + ids, mask=inside, other=0.0).to(tl.float32)
    wrong = (scores - scores != 0).to(tl.int32)  # NaN or infinity
    for first in range(0, lowest, BLOCK):  # of text: never drawn, but finite
        text = tl.load(logits + first + place, mask=first + place < lowest, other=0.0).to(tl.float32)
        wrong |= (text - text != 0).to(tl.int32)
    finite = tl.max(wrong, axis=0) == 0
    scores = scores - seen * freq - tl.where(seen > 0, presence, 0.0)
    scores = scores - tl.where(ids == end, penalty, 0.0)
    scores = tl.where(inside, scores, -float("inf"))
    if temperature > 0:
        scores = tl.div_rn(scores, temperature)
        scores = top_k_kept(scores, scores, top_k, vocabulary)
        scores = top_p_kept(scores, top_p)
        if typical <= OFF:
            scores = _typical_kept(scores, typical)
    else:
        scores = tl.where(scores == tl.max(scores, axis=0), scores, -float("inf"))
    weights = tl.exp(scores - tl.max(scores, axis=0))
    sums = tl.cumsum(weights, axis=0)
    whole = tl.sum(tl.where(place == BLOCK - 1, sums, 0.0), axis=0)
    possible = weights > 0
    beyond = possible & (sums / whole > number)
    first = tl.min(tl.where(beyond, ids, vocabulary), axis=0)
    chosen = tl.minimum(first, tl.max(tl.where(possible, ids, 0), axis=0))
    chosen = tl.where(finite, chosen, 0)
    tl.store(drawn + now, tl.where(finite, chosen, -1))
    slot = recent + now % window
    leaving = tl.load(slot)
    tl.atomic_add(counts + leaving, -1, mask=leaving != EMPTY)
    tl.atomic_add(counts + chosen, 1)
    tl.store(slot, chosen)
    for start in range(0, width, BLOCK):
        col = start + place
        tl.store(row + col, tl.load(table + chosen * width + col, mask=col < width), mask=col < width)
    tl.store(position, tl.load(position) + 1)
    tl.store(count, now + 1)


@jit
def _typical_kept(scores, mass):
    """Drop numbers once those with surprise nearer to the expected one sum to `mass`."""
    highest = tl.max(scores, axis=0)
    total = tl.sum(tl.exp(scores - highest), axis=0)
    surprise = tl.log(total) + highest - scores
    probs = tl.exp(-surprise)
    expected = tl.sum(tl.where(probs > 0, probs * surprise, 0.0), axis=0)
    keys = tl.abs(surprise - expected).to(tl.int32, bitcast=True)
    edge = tl.full([], 0, dtype=tl.int32)
    bit = tl.full([], 1073741824, dtype=tl.int32)
    for _ in range(31):  # the largest edge whose predecessors are too few
        tried = edge | bit
        edge = tl.where(tl.sum(tl.where(keys < tried, probs, 0.0), axis=0) < mass, tried, edge)
        bit = bit >> 1
    return tl.where(keys > edge, -float("inf"), scores)
