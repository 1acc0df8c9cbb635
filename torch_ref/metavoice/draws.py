"""Both ends of the first stage's captured step, as Triton kernels: ids to rows, and logits to the next ids.

Draws follow torch_ref.metavoice.sampling.
"""

# pyright: reportInvalidTypeForm=false
# (Triton reads the kernels' annotations)

from __future__ import annotations

from torch import Tensor

from torch_ref.cuda.filters import ordered, top_k_kept
from torch_ref.cuda.launch import jit, launch, tl, triton
from tts_core.metavoice.config import END_OF_AUDIO
from tts_core.metavoice.sampling import LOWEST_TEMPERATURE, FirstStageSampling

EMBEDDED = 512  # numbers of a row that one program embeds
WARPS = 8
TEXTLESS = 2  # rows of guidance from which on text is replaced


def embed_rows(
    tokens: Tensor, table: Tensor, places: Tensor, speakers: Tensor, position: Tensor, x: Tensor, nothing: int
) -> None:
    """Sum token, position and speaker embeddings, as Transformer.embed does.

    tokens: (B, 1).  table: (V, D).  places: (N, D).  speakers: (R, 1, D), R = G·B.  position: (1,).
    x: (R, D), written.  nothing: the id that replaces text in the third rows of guidance.
    """
    rows, width = x.shape
    _embed[rows, triton.cdiv(width, EMBEDDED)](
        tokens, table, places, speakers, position, x, width, len(tokens), nothing,
        AUDIO=END_OF_AUDIO, TEXTLESS=TEXTLESS, BLOCK=EMBEDDED, num_warps=4, **launch(x.device),
    )  # fmt: skip


def draw_rows(
    logits: Tensor, waiting: Tensor | None, position: Tensor, out: Tensor, sampling: FirstStageSampling
) -> None:
    """Draw the next id of each text, -1 where its logits are not all finite, and advance the position.

    logits: (G·B, V).  waiting: (B, V) or None for the most probable.  position: (1,).  out: (B,).
    """
    texts, vocabulary = len(out), logits.shape[1]
    fast, top_p = sampling.rule == "fast", 2.0 if sampling.top_p is None else sampling.top_p
    scale, text_scale = sampling.cfg_scale, sampling.text_cfg_scale
    _draw_ids[texts,](
        logits, logits if waiting is None else waiting, position, out, vocabulary, texts,
        float(scale + text_scale - 1), float(1 - scale), float(1 - text_scale),
        float(max(sampling.temperature, LOWEST_TEMPERATURE)), sampling.top_k or 0,
        float(1 - top_p if fast else top_p),
        ROWS=sampling.rows, FAST=fast, CUT=sampling.top_p is not None, RACE=waiting is not None,
        BLOCK=triton.next_power_of_2(vocabulary), num_warps=WARPS, enable_fp_fusion=False,
        **launch(logits.device),
    )  # fmt: skip


@jit
def _embed(
    tokens, table, places, speakers, position, x, width, texts, nothing,
    AUDIO: tl.constexpr, TEXTLESS: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    row, col = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = col < width
    at = tl.load(position)
    where = tl.load(places + at * width + col, mask=inside, other=0.0)
    voice = tl.load(speakers + row * width + col, mask=inside, other=0.0).to(tl.float32)
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    token = tl.load(tokens + row % texts)
    token = tl.where((row >= TEXTLESS * texts) & (token > AUDIO), nothing, token)
    word = tl.load(table + token * width + col, mask=inside, other=0.0)
    both = (word.to(tl.float32) + where.to(tl.float32)).to(word.dtype).to(tl.float32)
    total = (both + voice).to(word.dtype)
    tl.store(x + row * width + col, total.to(x.dtype.element_ty), mask=inside)


@jit
def _draw_ids(
    logits, waiting, position, out, vocabulary, texts, full, speaker, textual, temperature, top_k, cut,
    ROWS: tl.constexpr, FAST: tl.constexpr, CUT: tl.constexpr, RACE: tl.constexpr, BLOCK: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """Draw for one text. full, speaker, textual: factors of its rows.  cut: sum that top-p compares with."""
    text, ids = tl.program_id(0), tl.arange(0, BLOCK)
    inside = ids < vocabulary
    at = text * vocabulary + ids
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    scores = tl.load(logits + at, mask=inside, other=0.0).to(tl.float32)
    wrong = scores - scores != 0  # NaN or infinity
    if ROWS > 1:
        other = tl.load(logits + texts * vocabulary + at, mask=inside, other=0.0).to(tl.float32)
        wrong |= other - other != 0
        scores = full * scores + speaker * other
    if ROWS > 2:
        other = tl.load(logits + 2 * texts * vocabulary + at, mask=inside, other=0.0).to(tl.float32)
        wrong |= other - other != 0
        scores = scores + textual * other
    finite = tl.max(wrong.to(tl.int32), axis=0) == 0
    scores = tl.where(inside, tl.div_rn(scores, temperature), -float("inf"))
    scores = top_k_kept(scores, scores, top_k, vocabulary)
    weights = tl.exp(scores - tl.max(scores, axis=0))
    probs = weights / tl.sum(weights, axis=0)
    if CUT:
        kept = _rising_kept(scores, probs, cut) if FAST else _falling_kept(probs, cut)
        probs = tl.where(kept, probs, 0.0)
        probs = probs / tl.sum(probs, axis=0)
    if RACE:
        times = tl.load(waiting + at, mask=inside, other=1.0)
        probs = tl.div_rn(probs, times)
    best = tl.argmax(tl.where(inside, probs, -1.0), axis=0)
    tl.store(out + text, tl.where(finite, best, -1).to(out.dtype.element_ty))
    if text == 0:
        tl.store(position, tl.load(position) + 1)


@jit
def _rising_kept(scores, probs, need):
    """Find what stays if, from the least probable up, ids are dropped while their sum is at most `need`.

    Of equal ones at the cut the last stay; the most probable one, and the last of several, always does.
    """
    keys = ordered(scores)
    edge = tl.full([], 0, dtype=tl.uint32)
    bit = tl.full([], 2147483648, dtype=tl.uint32)
    for _ in range(32):  # the largest edge that all ids below leave room for
        tried = edge | bit
        edge = tl.where(tl.sum(tl.where(keys < tried, probs, 0.0), axis=0) <= need, tried, edge)
        bit = bit >> 1
    highest = tl.max(keys, axis=0)
    edge = tl.minimum(edge, highest)
    below = tl.sum(tl.where(keys < edge, probs, 0.0), axis=0)
    equal = keys == edge
    rank = tl.cumsum(equal.to(tl.int32), axis=0)
    last = (edge == highest) & (rank == tl.sum(equal.to(tl.int32), axis=0))
    return (keys > edge) | (equal & ((below + rank * probs > need) | last))


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
