"""Both ends of Qwen3-TTS's captured step, as Triton kernels: the sum of embeddings, and the draws.

Draws are those of torch_ref.cuda.sampling.
"""

# pyright: reportInvalidTypeForm=false
# (Triton reads the kernels' annotations)

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from torch_ref.cuda.sampling import DrawRows, draw_rows
from torch_ref.cuda.triton import jit, pdl, tl, triton
from tts_core.qwen3.config import Qwen3Config
from tts_core.qwen3.layout import FIRST, OTHERS

EMBEDDED = 256  # numbers of a row that one program embeds


class Qwen3Draws(NamedTuple):
    """State of B texts on the device.

    ids: (B,) int64, of the text that is read next.
    positions: (B,) int64, of the row that is computed next.
    steps: (B,) int64, frames that were drawn, -1 without a text, or of one that waits: nothing is drawn.
    codes: (B, Q) int32, of the last frame; the first is -1 where logits were not finite.
    seen: (B, V) int8, 1 for first codes that were drawn.
    settings: (B, 2, N) float32, of first codes and of others, with the columns of the samplers.
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


class Qwen3Following(NamedTuple):
    """Where a draw writes the code, and the embedding that follows it, which is nothing if `width` is 0.

    codes: (B, Q), from the drawn book on.
    table: (V, E).
    x: (B, E).
    """

    codes: Tensor
    seen: Tensor
    table: Tensor
    x: Tensor
    books: int
    vocabulary: int
    width: int


def embed(rows: Qwen3Draws, text: Tensor, table: Tensor, x: Tensor, config: Qwen3Config) -> None:
    """Sum the embeddings of each text's frame and of the text that belongs to it; at first, its last row.

    text: (B, D).
    table: (V + (Q - 1) V', D), of all codes.
    x: (B, D), written.
    """
    count, width = x.shape
    _embed[count, triton.cdiv(width, EMBEDDED)](
        steps=rows.steps, codes=rows.codes, last=rows.last, text=text, table=table, x=x, width=width,
        vocabulary=config.vocab_size, size=config.codebook_size, BOOKS=config.n_codebooks, BLOCK=EMBEDDED,
        num_warps=2, **pdl(x.device),
    )  # fmt: skip


def draw(
    logits: Tensor,
    rows: Qwen3Draws,
    stage: int,
    config: Qwen3Config,
    following: tuple[Tensor, Tensor] | None,
    allowed: Tensor | None = None,
) -> None:
    """Draw each text's code of a frame.

    logits: (B, V), of stage 0, or (B, V').
    following: (V, E) and (B, E): the embedding of the code is written to the latter.
    allowed: (V,) int8, first codes and the end; for stage 0.
    """
    vocabulary, is_first = logits.shape[1], stage == 0
    start = 0 if is_first else config.vocab_size + (stage - 1) * config.codebook_size
    noise = rows.noise[None, :, start : start + vocabulary]
    table, x = (logits, logits) if following is None else following
    width = 0 if following is None else x.shape[1]
    draw_rows(
        DrawRows(logits, noise, rows.steps, allowed=allowed, counts=rows.seen if is_first else None),
        rows.settings[:, min(stage, 1)],
        FIRST if is_first else OTHERS,
        _drawn_first if is_first else _drawn,
        Qwen3Following(rows.codes[:, stage:], rows.seen, table, x, config.n_codebooks, vocabulary, width),
        end=config.codec_eos_id,
        wide=max(1, width),
    )


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
def _drawn_first(state, text, channel, id, finite, GROUPS: tl.constexpr, WIDE: tl.constexpr):
    """Note the first code of a text's frame, -1 where logits are not finite."""
    tl.store(state.seen + text * state.vocabulary + id, 1)
    tl.store(state.codes + text * state.books, tl.where(finite, id, -1))
    _follow(state, text, id, WIDE)


@jit
def _drawn(state, text, channel, id, finite, GROUPS: tl.constexpr, WIDE: tl.constexpr):
    """Note another code of a text's frame."""
    tl.store(state.codes + text * state.books, id)
    _follow(state, text, id, WIDE)


@jit
def _follow(state, text, id, WIDE: tl.constexpr):
    if state.width > 0:
        col = tl.arange(0, WIDE)
        row = tl.load(state.table + id.to(tl.int64) * state.width + col, mask=col < state.width, other=0.0)
        tl.store(state.x + text * state.width + col, row, mask=col < state.width)
