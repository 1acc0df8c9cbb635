"""Both ends of Qwen3-TTS's captured step, as Triton kernels: the sum of embeddings, and the draws.

Draws follow torch_ref.qwen3.sampling.
"""

# pyright: reportInvalidTypeForm=false
# (Triton reads the kernels' annotations)

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from torch import Tensor

from torch_ref.cuda.filters import rising_kept, top_k_kept
from torch_ref.cuda.triton import columns, jit, pdl, tl, triton
from tts_core.qwen3.config import SUPPRESSED, Qwen3Config
from tts_core.qwen3.sampling import LEAST_FRAMES, Qwen3Sampling

EMBEDDED = 256  # numbers of a row that one program embeds
DRAW_WARPS = 8


class Qwen3Draws(NamedTuple):
    """State of B texts on the device.

    ids: (B,) int64, of the text that is read next.
    positions: (B,) int64, of the row that is computed next.
    steps: (B,) int64, frames that were drawn, -1 without a text, or of one that waits: nothing is drawn.
    codes: (B, Q) int32, of the last frame; the first is -1 where logits were not finite.
    seen: (B, V) int8, 1 for first codes that were drawn.
    settings: (B, 2, 4) float32, from `settings`.
    noise: (B, V + (Q - 1) V') float32, uniform numbers; after the step log(-log(u)).
    last: (B, D), the last row before speech.
    """

    ids: Tensor
    positions: Tensor
    steps: Tensor
    codes: Tensor
    seen: Tensor
    settings: Tensor
    noise: Tensor
    last: Tensor


class Qwen3Numbers(NamedTuple):
    """A choice for `draw`.

    temperature: 0 for the largest logit.
    top_k: 0 for every id.
    dropped: the sum that top-p drops, 0 for none.
    """

    temperature: float
    top_k: int
    dropped: float
    penalty: float


def settings(sampling: Qwen3Sampling) -> np.ndarray:
    """Write a text's sampling, (2, 4) float32: Qwen3Numbers of first codes, and of others."""
    penalties = (sampling.first, sampling.repetition_penalty), (sampling.others, 1.0)
    numbers = [
        Qwen3Numbers(
            temperature=0 if choice.is_greedy else choice.temperature,
            top_k=choice.top_k,
            dropped=1 - choice.top_p,
            penalty=penalty,
        )
        for choice, penalty in penalties
    ]
    return np.array(numbers, np.float32)


def embed(rows: Qwen3Draws, text: Tensor, table: Tensor, x: Tensor, config: Qwen3Config) -> None:
    """Sum the embeddings of each text's frame and of the text that belongs to it; at first, its last row.

    text: (B, D).
    table: (V + (Q - 1) V', D), of all codes.
    x: (B, D), written.
    """
    count, width = x.shape
    _embed[count, triton.cdiv(width, EMBEDDED)](
        rows.steps, rows.codes, rows.last, text, table, x, width, config.vocab_size, config.codebook_size,
        BOOKS=config.n_codebooks, BLOCK=EMBEDDED, num_warps=2, **pdl(x.device),
    )  # fmt: skip


def draw(
    logits: Tensor, rows: Qwen3Draws, stage: int, config: Qwen3Config, following: tuple[Tensor, Tensor] | None
) -> None:
    """Draw each text's code of a frame. logits: (B, V), of stage 0, or (B, V').

    following: (V, E) and (B, E): the embedding of the code is written to the latter.
    """
    vocabulary, is_first = logits.shape[1], stage == 0
    start = 0 if is_first else config.vocab_size + (stage - 1) * config.codebook_size
    table, x = (logits, logits) if following is None else following
    width = 0 if following is None else x.shape[1]
    _draw[len(logits),](
        logits=logits, noise=rows.noise[:, start:], settings=rows.settings[:, min(stage, 1)],
        steps=rows.steps, seen=rows.seen, out=rows.codes[:, stage:], table=table, x=x,
        stride=logits.stride(0), vocabulary=vocabulary, noise_stride=rows.noise.stride(0), width=width,
        codes=vocabulary - SUPPRESSED, end=config.codec_eos_id,
        **columns(Qwen3Numbers._fields), BOOKS=config.n_codebooks, LEAST=LEAST_FRAMES, FIRST=is_first,
        BLOCK=max(16, triton.next_power_of_2(vocabulary)), COLS=triton.next_power_of_2(max(1, width)),
        num_warps=DRAW_WARPS if vocabulary > 256 else 1, enable_fp_fusion=False, **pdl(logits.device),
    )  # fmt: skip


@jit
def _embed(
    steps, codes, last, text, table, x, width, vocabulary, size,
    BOOKS: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    item = tl.program_id(0)
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = col < width
    has_begun = tl.load(steps + item) > 0
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    row = tl.maximum(tl.load(codes + item * BOOKS), 0)
    first = tl.load(table + row * width + col, mask=inside, other=0.0)
    kind = first.dtype
    total = first.to(tl.float32)
    for book in tl.static_range(1, BOOKS):
        row = vocabulary + (book - 1) * size + tl.load(codes + item * BOOKS + book)
        read = tl.load(table + row * width + col, mask=inside, other=0.0).to(tl.float32)
        total = (total + read).to(kind).to(tl.float32)
    read = tl.load(text + item * width + col, mask=inside, other=0.0).to(tl.float32)
    before = tl.load(last + item * width + col, mask=inside, other=0.0)
    tl.store(x + item * width + col, tl.where(has_begun, (total + read).to(kind), before), mask=inside)


@jit
def _draw(
    logits, noise, settings, steps, seen, out, table, x,
    stride, vocabulary, noise_stride, width, codes, end,
    TEMPERATURE: tl.constexpr, TOP_K: tl.constexpr, DROPPED: tl.constexpr, PENALTY: tl.constexpr,
    SETTINGS: tl.constexpr, BOOKS: tl.constexpr, LEAST: tl.constexpr, FIRST: tl.constexpr,
    BLOCK: tl.constexpr, COLS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Draw for one text. codes: ids below are codes.  end: the id that ends speech."""
    item, ids = tl.program_id(0), tl.arange(0, BLOCK)
    inside, step = ids < vocabulary, tl.load(steps + item)
    numbers = settings + item * 2 * SETTINGS
    temperature, top_k = tl.load(numbers + TEMPERATURE), tl.load(numbers + TOP_K).to(tl.int32)
    dropped, penalty = tl.load(numbers + DROPPED), tl.load(numbers + PENALTY)
    gumbel = tl.load(noise + item * noise_stride + ids, mask=inside, other=0.0)
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    scores = tl.load(logits + item * stride + ids, mask=inside, other=0.0).to(tl.float32)
    finite = tl.max((scores - scores != 0).to(tl.int32), axis=0) == 0  # neither NaN nor infinity
    allowed = inside
    if FIRST:
        before = tl.load(seen + item * vocabulary + ids, mask=inside, other=0) > 0
        penalized = tl.where(scores < 0, scores * penalty, tl.div_rn(scores, penalty))
        scores = tl.where(before, penalized, scores)
        may_end = step >= LEAST
        allowed = ((ids < codes) & (ids != end)) | ((ids == end) & may_end)
    scores = tl.where(allowed, scores, -float("inf"))
    if temperature > 0:
        scores = tl.div_rn(scores, temperature)
        scores = top_k_kept(scores, scores, top_k, vocabulary)
        if dropped > 0:
            weights = tl.exp(scores - tl.max(scores, axis=0))
            kept = rising_kept(scores, weights / tl.sum(weights, axis=0), dropped)
            scores = tl.where(kept, scores, -float("inf"))
        scores = scores - gumbel
    chosen = tl.where(finite, tl.argmax(scores, axis=0).to(tl.int32), 0)
    if FIRST:
        tl.store(seen + item * vocabulary + chosen, 1, mask=step >= 0)
        tl.store(out + item * BOOKS, tl.where(finite, chosen, -1), mask=step >= 0)
    else:
        tl.store(out + item * BOOKS, chosen, mask=step >= 0)
    if width > 0:
        col = tl.arange(0, COLS)
        row = tl.load(table + chosen.to(tl.int64) * width + col, mask=col < width, other=0.0)
        tl.store(x + item * width + col, row, mask=col < width)
