"""Both ends of the first stage's captured step, as Triton kernels: ids to rows, and logits to the next ids.

Draws are those of torch_ref.cuda.sampling.
"""

# pyright: reportInvalidTypeForm=false
# (Triton reads the kernels' annotations)

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from torch_ref.cuda.sampling import DrawRows, draw_rows
from torch_ref.cuda.triton import jit, pdl, tl, triton
from tts_core.metavoice.config import END_OF_AUDIO
from tts_core.metavoice.inputs import SAMPLER

EMBEDDED = 512  # numbers of a row that one program embeds
WARPS = 8


class MetaVoiceDraws(NamedTuple):
    """State of B texts on R rows of the network, on the device.

    tokens: (R, 1) int64, the next ids.
    positions: (R,) int64, theirs.
    own: (B, 3) int32, rows of each text's guidance, -1 where there is none.
    settings: (B, N) float32, with the columns of the sampler.
    step: (B,) int64, -1 for a text that takes no part.
    """

    tokens: Tensor
    positions: Tensor
    own: Tensor
    settings: Tensor
    step: Tensor


class MetaVoiceDrawn(NamedTuple):
    """What a draw writes: ids of the texts into `out`, tokens and positions of their rows."""

    tokens: Tensor
    positions: Tensor
    own: Tensor
    out: Tensor
    last: int
    audio: int
    end_of_text: int


def embed_rows(rows: MetaVoiceDraws, table: Tensor, wpe: Tensor, speakers: Tensor, x: Tensor) -> None:
    """Sum token, position and speaker embeddings, as Transformer.embed does.

    table: (V, D).
    wpe: (N, D).
    speakers: (R, 1, D).
    x: (R, D), written.
    """
    count, width = x.shape
    _embed[count, triton.cdiv(width, EMBEDDED)](
        tokens=rows.tokens, table=table, wpe=wpe, speakers=speakers, positions=rows.positions, x=x,
        width=width, BLOCK=EMBEDDED, num_warps=4, **pdl(x.device),
    )  # fmt: skip


def draw_ids(
    logits: Tensor, noise: Tensor, rows: MetaVoiceDraws, out: Tensor, *, last: int, end_of_text: int
) -> None:
    """Draw each text's next id and let its rows read it.

    logits: (R, V).
    noise: (B, V) float32, log(-log(u)) of uniform numbers.
    out: (B,), written: -1 where a text's logits are not all finite.
    last: the highest position.
    end_of_text: the id that replaces text in rows without it.
    """
    draw_rows(
        DrawRows(logits, noise[None], rows.step, rows.own),
        rows.settings,
        SAMPLER,
        _drawn,
        MetaVoiceDrawn(rows.tokens, rows.positions, rows.own, out, last, END_OF_AUDIO, end_of_text),
        wide=rows.own.shape[1],
        warps=WARPS,
    )


@jit
def _embed(tokens, table, wpe, speakers, positions, x, width, BLOCK: tl.constexpr, PDL: tl.constexpr):
    row, col = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = col < width
    at = tl.load(positions + row)
    where = tl.load(wpe + at * width + col, mask=inside, other=0.0)
    voice = tl.load(speakers + row * width + col, mask=inside, other=0.0).to(tl.float32)
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    word = tl.load(table + tl.load(tokens + row) * width + col, mask=inside, other=0.0)
    both = (word.to(tl.float32) + where.to(tl.float32)).to(word.dtype).to(tl.float32)
    total = (both + voice).to(word.dtype)
    tl.store(x + row * width + col, total.to(x.dtype.element_ty), mask=inside)


@jit
def _drawn(state, text, channel, id, finite, GROUPS: tl.constexpr, WIDE: tl.constexpr):
    """Note the id, -1 where logits are not finite, and move the text's rows on."""
    tl.store(state.out + text, tl.where(finite, id, -1).to(state.out.dtype.element_ty))
    guidance = tl.arange(0, WIDE)
    row = tl.load(state.own + text * GROUPS + guidance, mask=guidance < GROUPS, other=-1)
    read = tl.where((guidance == 2) & (id > state.audio), state.end_of_text, id)
    tl.store(state.tokens + row, read.to(state.tokens.dtype.element_ty), mask=row >= 0)
    at = tl.load(state.positions + row, mask=row >= 0, other=0)
    tl.store(state.positions + row, tl.minimum(at + 1, state.last), mask=row >= 0)
