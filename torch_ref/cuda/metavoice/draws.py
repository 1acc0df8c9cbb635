"""Both ends of the first stage's captured step, as Triton kernels: ids to rows, and logits to the next ids.

Draws follow torch_ref.metavoice.sampling.
"""

# pyright: reportInvalidTypeForm=false
# (Triton reads the kernels' annotations)

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from torch import Tensor

from torch_ref.cuda.filters import rising_kept, top_k_kept
from torch_ref.cuda.triton import columns, jit, pdl, tl, triton
from tts_core.metavoice.config import END_OF_AUDIO
from tts_core.metavoice.sampling import LOWEST_TEMPERATURE, FirstStageSampling

EMBEDDED = 512  # numbers of a row that one program embeds
WARPS = 8
RISING, FALLING = 1, 2  # rules of top-p, by the order in which probabilities are summed


class MetaVoiceDraws(NamedTuple):
    """State of B texts on R rows of the network, on the device.

    tokens: (R, 1) int64, the next ids.
    positions: (R,) int64, theirs.
    own: (B, 3) int32, rows of each text's guidance, -1 where there is none.
    settings: (B, 7) float32, rows of MetaVoiceNumbers.
    """

    tokens: Tensor
    positions: Tensor
    own: Tensor
    settings: Tensor


class MetaVoiceNumbers(NamedTuple):
    """A text's sampling for `draw_rows`.

    full, speaker, textual: factors of the rows of guidance.
    top_k: 0 for every id.
    rule: of top-p, 0 for none.
    cut: the sum that it compares with.
    """

    full: float
    speaker: float
    textual: float
    temperature: float
    top_k: int
    rule: int
    cut: float


def settings(sampling: FirstStageSampling) -> np.ndarray:
    """Write a text's sampling as MetaVoiceNumbers, (7,) float32."""
    scale, text_scale, rule, cut = sampling.cfg_scale, sampling.text_cfg_scale, 0, 0.0
    if sampling.top_p is not None:
        fast = sampling.rule == "fast"
        rule, cut = (RISING, 1 - sampling.top_p) if fast else (FALLING, sampling.top_p)
    numbers = MetaVoiceNumbers(
        full=scale + text_scale - 1,
        speaker=1 - scale,
        textual=1 - text_scale,
        temperature=max(sampling.temperature, LOWEST_TEMPERATURE),
        top_k=sampling.top_k or 0,
        rule=rule,
        cut=cut,
    )
    return np.array(numbers, np.float32)


def embed_rows(rows: MetaVoiceDraws, table: Tensor, places: Tensor, speakers: Tensor, x: Tensor) -> None:
    """Sum token, position and speaker embeddings, as Transformer.embed does.

    table: (V, D).
    places: (N, D).
    speakers: (R, 1, D).
    x: (R, D), written.
    """
    count, width = x.shape
    _embed[count, triton.cdiv(width, EMBEDDED)](
        rows.tokens, table, places, speakers, rows.positions, x, width,
        BLOCK=EMBEDDED, num_warps=4, **pdl(x.device),
    )  # fmt: skip


def draw_rows(
    logits: Tensor, waiting: Tensor, rows: MetaVoiceDraws, out: Tensor, *, last: int, end_of_text: int
) -> None:
    """Draw the next id of each text, -1 where its logits are not all finite, and put it into its rows.

    logits: (R, V).
    waiting: (B, V) waiting times, ones for the most probable id.
    out: (B,), 0 for a text without rows.
    last: the last position, where rows stay.
    end_of_text: replaces text in rows without it.
    """
    texts, vocabulary = waiting.shape
    _draw_ids[texts,](
        logits=logits, waiting=waiting, **rows._asdict(), out=out, vocabulary=vocabulary, last=last,
        nothing=end_of_text, **columns(MetaVoiceNumbers._fields), AUDIO=END_OF_AUDIO, RISING=RISING,
        BLOCK=triton.next_power_of_2(vocabulary),
        num_warps=WARPS, enable_fp_fusion=False, **pdl(logits.device),
    )  # fmt: skip


@jit
def _embed(tokens, table, places, speakers, positions, x, width, BLOCK: tl.constexpr, PDL: tl.constexpr):
    row, col = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = col < width
    at = tl.load(positions + row)
    where = tl.load(places + at * width + col, mask=inside, other=0.0)
    voice = tl.load(speakers + row * width + col, mask=inside, other=0.0).to(tl.float32)
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    word = tl.load(table + tl.load(tokens + row) * width + col, mask=inside, other=0.0)
    both = (word.to(tl.float32) + where.to(tl.float32)).to(word.dtype).to(tl.float32)
    total = (both + voice).to(word.dtype)
    tl.store(x + row * width + col, total.to(x.dtype.element_ty), mask=inside)


@jit
def _draw_ids(
    logits, waiting, tokens, positions, own, settings, out, vocabulary, last, nothing,
    FULL: tl.constexpr, SPEAKER: tl.constexpr, TEXTUAL: tl.constexpr, TEMPERATURE: tl.constexpr,
    TOP_K: tl.constexpr, RULE: tl.constexpr, CUT: tl.constexpr, SETTINGS: tl.constexpr,
    AUDIO: tl.constexpr, RISING: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Draw for one text. nothing: the id that replaces text."""
    text, ids = tl.program_id(0), tl.arange(0, BLOCK)
    inside = ids < vocabulary
    times = tl.load(waiting + text * vocabulary + ids, mask=inside, other=1.0)
    mine = settings + text * SETTINGS
    full, speaker, textual = tl.load(mine + FULL), tl.load(mine + SPEAKER), tl.load(mine + TEXTUAL)
    temperature, top_k = tl.load(mine + TEMPERATURE), tl.load(mine + TOP_K).to(tl.int32)
    rule, cut = tl.load(mine + RULE).to(tl.int32), tl.load(mine + CUT)
    first = tl.load(own + text * 3)
    second, third = tl.load(own + text * 3 + 1), tl.load(own + text * 3 + 2)
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    if first < 0:
        tl.store(out + text, 0)
        return
    scores = tl.load(logits + first * vocabulary + ids, mask=inside, other=0.0).to(tl.float32)
    second = tl.where(second < 0, first, second)  # a row that is missing has the factor 0
    third = tl.where(third < 0, first, third)
    unspoken = tl.load(logits + second * vocabulary + ids, mask=inside, other=0.0).to(tl.float32)
    unread = tl.load(logits + third * vocabulary + ids, mask=inside, other=0.0).to(tl.float32)
    # NaN or infinity
    wrong = (scores - scores != 0) | (unspoken - unspoken != 0) | (unread - unread != 0)
    finite = tl.max(wrong.to(tl.int32), axis=0) == 0
    scores = full * scores + speaker * unspoken + textual * unread
    scores = tl.where(inside, tl.div_rn(scores, temperature), -float("inf"))
    scores = top_k_kept(scores, scores, top_k, vocabulary)
    weights = tl.exp(scores - tl.max(scores, axis=0))
    probs = weights / tl.sum(weights, axis=0)
    if rule > 0:
        if rule == RISING:  # noqa: SIM108
            kept = rising_kept(scores, probs, cut)
        else:
            kept = _falling_kept(probs, cut)
        probs = tl.where(kept, probs, 0.0)
        probs = probs / tl.sum(probs, axis=0)
    best = tl.argmax(tl.where(inside, tl.div_rn(probs, times), -1.0), axis=0)
    token = tl.where(finite, best, -1)
    tl.store(out + text, token.to(out.dtype.element_ty))
    token = tl.maximum(token, 0)
    guidance = tl.arange(0, 4)
    row = tl.load(own + text * 3 + guidance, mask=guidance < 3, other=-1)
    read = tl.where((guidance == 2) & (token > AUDIO), nothing, token)
    tl.store(tokens + row, read.to(tokens.dtype.element_ty), mask=row >= 0)
    at = tl.load(positions + row, mask=row >= 0, other=0)
    tl.store(positions + row, tl.minimum(at + 1, last), mask=row >= 0)


@jit
def _falling_kept(probs, most):
    """Find what stays if the most probable ids are kept until their sum exceeds `most`.

    The id that crosses it is kept; of equal ones at the cut the first stay.
    """
    keys = probs.to(tl.int32, bitcast=True)
    edge = tl.full([], 0, dtype=tl.int32)
    bit = tl.full([], 1073741824, dtype=tl.int32)
    for _ in range(31):  # the largest edge that is still too low
        tried = edge | bit
        edge = tl.where(tl.sum(tl.where(keys > tried, probs, 0.0), axis=0) > most, tried, edge)
        bit = bit >> 1
    edge = tl.where(tl.sum(tl.where(keys > edge, probs, 0.0), axis=0) > most, edge, -1)
    lowest = tl.min(tl.where(keys > edge, keys, 2147483647), axis=0)
    above = tl.sum(tl.where(keys > lowest, probs, 0.0), axis=0)
    equal = keys == lowest
    rank = tl.cumsum(equal.to(tl.int32), axis=0)
    return (keys > lowest) | (equal & (above + (rank - 1) * probs <= most))
