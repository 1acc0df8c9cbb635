"""Both ends of Dia2's captured step, as Triton kernels: the sum of embeddings, and the draws.

Draws are those of torch_ref.cuda.sampling.
"""

# pyright: reportInvalidTypeForm=false
# (Triton reads the kernels' annotations)

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor

from torch_ref.cuda.sampling import DrawRows, draw_rows
from torch_ref.cuda.triton import jit, pdl, tl, triton
from tts_core.dia2.inputs import FIRST_STREAM, SAMPLER

EMBEDDED = 256  # numbers of a row that one program embeds


class Dia2Given(NamedTuple):
    """What the host gives for a step of B texts, rows of one array.

    step: (B,), of the noise; -1 for a text that takes no part.
    slot, position: (B,), of the cache's row to write, and of its angle.
    text, second_text: (B,), ids of both text streams.
    codes: (Q, B), negative where those that were drawn last are read.
    """

    step: Any
    slot: Any
    position: Any
    text: Any
    second_text: Any
    codes: Any

    @classmethod
    def of(cls, array: Any) -> Dia2Given:
        """Return the rows by name. array: (5 + Q, B)."""
        count = len(cls._fields) - 1
        return cls._make([*array[:count], array[count:]])

    @classmethod
    def shape(cls, streams: int, texts: int) -> tuple[int, int]:
        """Shape of the array."""
        return len(cls._fields) - 1 + streams, texts


class Dia2Draws(NamedTuple):
    """State of B texts on the device.

    inputs: int64, rows of Dia2Given.
    codes: (B, Q) int32, of the last step that a text took part in, -1 where logits were not finite.
    actions: (B,) int32, likewise.
    settings: (B, 2, N) float32, of actions and of codes, with the columns of the sampler.
    noise: (B, 1 + Q, V) float32, log(-log(u)) of uniform numbers for the action and the codes.
    """

    inputs: Tensor
    codes: Tensor
    actions: Tensor
    settings: Tensor
    noise: Tensor


class Follows(NamedTuple):
    """The depformer's input that a draw writes: a text's projected rows and the embedding of its new code.

    projected: (R, E), with any distance between rows.
    table: (V, E).
    x: (R, E), written.
    """

    projected: Tensor
    table: Tensor
    x: Tensor


class Dia2Drawn(NamedTuple):
    """What a draw writes: the id into the first column of `out`, and its Follows, none if `width` is 0.

    out_row, projected_row: distances between rows.
    """

    projected: Tensor
    table: Tensor
    x: Tensor
    out: Tensor
    out_row: int
    projected_row: int
    width: int


def embed(
    rows: Dia2Draws,
    text: Tensor,
    empty: Tensor,
    table: Tensor,
    x: Tensor,
    slots: Tensor,
    positions: Tensor,
) -> None:  # fmt: skip
    """Sum each text's embeddings for its conditional row, and again for the unconditional one.

    text: (B, D), of the text streams.
    empty: (D,), of the unconditional row's.
    table: (Q·V, D).
    x: (R, D), written, as are places and positions, (R,) int64: rows of the cache, and positions. A text's
    rows follow each other.
    """
    texts, streams = rows.codes.shape
    width = table.shape[1]
    _embed[texts, triton.cdiv(width, EMBEDDED)](
        given=Dia2Given.of(rows.inputs), codes=rows.codes, text=text, empty=empty, table=table, x=x,
        slots=slots, positions=positions, vocabulary=len(table) // streams, width=width,
        given_row=rows.inputs.stride(0),
        COPIES=len(x) // texts, STREAMS=streams, BLOCK=EMBEDDED,
        num_warps=2, **pdl(x.device),
    )  # fmt: skip


def draw_action(logits: Tensor, rows: Dia2Draws, own: Tensor | None) -> None:
    """Draw each text's action. logits: (R, A), with any distance between rows. own: as in DrawRows."""
    _draws(logits, rows, 0, rows.actions[:, None], None, own, None)


def draw_code(
    logits: Tensor,
    rows: Dia2Draws,
    stream: int,
    own: Tensor | None,
    follows: Follows | None = None,
    allowed: Tensor | None = None,
) -> None:
    """Draw each text's code of one stream.

    logits: (R, V), with any distance between rows.
    own: as in DrawRows.
    allowed: (V,) int8, ids of the first stream.
    """
    _draws(logits, rows, 1 + stream, rows.codes[:, stream:], follows, own, allowed)


def _draws(
    logits: Tensor,
    rows: Dia2Draws,
    index: int,
    out: Tensor,
    follows: Follows | None,
    own: Tensor | None,
    allowed: Tensor | None,
) -> None:
    """index: of the draw in a step's noise.  out: (B, ..), whose first column takes the ids."""
    following = follows or Follows(projected=logits, table=logits, x=logits)
    width = 0 if follows is None else follows.x.shape[1]
    draw_rows(
        DrawRows(logits, rows.noise[None, :, index], Dia2Given.of(rows.inputs).step, own, allowed),
        rows.settings[:, min(index, 1)],
        SAMPLER if allowed is None else FIRST_STREAM,
        _drawn,
        Dia2Drawn(
            **following._asdict(),
            out=out,
            out_row=out.stride(0),
            projected_row=following.projected.stride(0),
            width=width,
        ),
        wide=max(1, width),
    )


@jit
def _embed(
    given, codes, text, empty, table, x, slots, positions, vocabulary, width, given_row,
    COPIES: tl.constexpr, STREAMS: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    item = tl.program_id(0)
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = col < width
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    slot, position = tl.load(given.slot + item), tl.load(given.position + item)
    own = tl.load(text + item * width + col, mask=inside, other=0.0)
    kind = own.dtype
    own = own.to(tl.float32)
    other = tl.load(empty + col, mask=inside, other=0.0).to(tl.float32)
    for stream in tl.static_range(STREAMS):
        known = tl.load(given.codes + stream * given_row + item)
        drawn = tl.maximum(tl.load(codes + item * STREAMS + stream), 0)
        row = stream * vocabulary + tl.where(known < 0, drawn, known)
        read = tl.load(table + row * width + col, mask=inside, other=0.0).to(tl.float32)
        own = (own + read).to(kind).to(tl.float32)
        other = (other + read).to(kind).to(tl.float32)
    for copy in tl.static_range(COPIES):
        at = item * COPIES + copy
        total = own if copy == 0 else other
        tl.store(x + at * width + col, total.to(kind), mask=inside)
        if tl.program_id(1) == 0:
            tl.store(slots + at, slot)
            tl.store(positions + at, position)


@jit
def _drawn(state, text, channel, id, finite, GROUPS: tl.constexpr, WIDE: tl.constexpr):
    """Note a text's id, and write the row that follows it for each row of guidance."""
    tl.store(state.out + text * state.out_row, tl.where(finite, id, -1))
    if state.width > 0:
        col = tl.arange(0, WIDE)
        there = col < state.width
        read = tl.load(state.table + id.to(tl.int64) * state.width + col, mask=there, other=0.0)
        for copy in tl.static_range(GROUPS):
            row = text * GROUPS + copy
            own = tl.load(state.projected + row * state.projected_row + col, mask=there, other=0.0)
            total = (own.to(tl.float32) + read.to(tl.float32)).to(own.dtype)
            tl.store(state.x + row * state.width + col, total, mask=there)
