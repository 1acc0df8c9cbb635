"""Both ends of Dia2's captured step, as Triton kernels: the sum of embeddings, and the draws.

Draws follow torch_ref.dia2.sampling.
"""

# pyright: reportInvalidTypeForm=false
# (Triton reads the kernels' annotations)

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from torch_ref.cuda.filters import first_k_kept, top_k_kept
from torch_ref.cuda.triton import columns, jit, pdl, tl, triton
from tts_core.dia2.config import Dia2Config
from tts_core.dia2.sampling import COLDEST, Dia2Choice

INPUTS = 5  # rows of Dia2Draws.inputs before the codes
EMBEDDED = 256  # numbers of a row that one program embeds
DRAW_WARPS = 8


class Dia2Draws(NamedTuple):
    """State of B texts on the device.

    inputs: (INPUTS + Q, B) int64, of the next step: its number, negative where the text takes no part; row of
    the cache to write, position, ids of both text streams; then the codes, negative where those of `codes`
    are read.
    codes: (B, Q) int32, of the last step that a text took part in, -1 where logits were not finite.
    actions: (B,) int32, likewise.
    settings: (B, 2, 5) float32, rows of Dia2Numbers, of actions and of codes.
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


class Dia2Numbers(NamedTuple):
    """A choice as the device draws by it. near: 1 if guidance is computed from the conditional logits."""

    filter_k: int
    near: bool
    factor: float
    temperature: float
    top_k: int


def numbers_of(choice: Dia2Choice) -> Dia2Numbers:
    """Return the numbers by which the device draws."""
    near = abs(choice.cfg_scale) >= 0.5
    return Dia2Numbers(
        filter_k=choice.cfg_filter_k if choice.is_guided else 0,
        near=near,
        factor=1 - choice.cfg_scale if near else choice.cfg_scale,
        temperature=0.0 if choice.is_greedy else max(choice.temperature, COLDEST),
        top_k=choice.top_k,
    )


def embed(
    rows: Dia2Draws,
    text: Tensor,
    nothing: Tensor,
    table: Tensor,
    x: Tensor,
    places: Tensor,
    positions: Tensor,
) -> None:  # fmt: skip
    """Sum each text's embeddings for its conditional row, and again for the unconditional one.

    text: (B, D), of the text streams.
    nothing: (D,), of the unconditional row's.
    table: (Q·V, D).
    x: (R, D), written, as are places and positions, (R,) int64: rows of the cache, and positions.
    """
    texts, streams = rows.codes.shape
    width = table.shape[1]
    _embed[texts, triton.cdiv(width, EMBEDDED)](
        rows.inputs, rows.codes, text, nothing, table, x, places, positions,
        len(table) // streams, width, texts,
        INPUTS=INPUTS, COPIES=len(x) // texts, STREAMS=streams, BLOCK=EMBEDDED,
        num_warps=2, **pdl(x.device),
    )  # fmt: skip


def draw_action(logits: Tensor, rows: Dia2Draws) -> None:
    """Draw each text's action. logits: (R, A), with any distance between rows."""
    _draws(logits, rows, 0, rows.actions[:, None], None, (-1, -1))


def draw_code(
    logits: Tensor, rows: Dia2Draws, stream: int, config: Dia2Config, follows: Follows | None = None
) -> None:
    """Draw each text's code of one stream. logits: (R, V), with any distance between rows."""
    forbidden = (config.audio_pad_id, config.audio_bos_id) if stream == 0 else (-1, -1)
    _draws(logits, rows, 1 + stream, rows.codes[:, stream:], follows, forbidden)


def _draws(
    logits: Tensor,
    rows: Dia2Draws,
    place: int,
    out: Tensor,
    follows: Follows | None,
    forbidden: Sequence[int],
) -> None:
    """place: of the draw in a step's noise.  out: (B, ..), whose first column takes the ids."""
    texts = len(rows.codes)
    copies, vocabulary, stride = len(logits) // texts, logits.shape[1], logits.stride(0)
    following = follows or Follows(projected=logits, table=logits, x=logits)
    width = 0 if follows is None else follows.x.shape[1]
    pad, bos = forbidden
    _draw[texts,](
        logits=logits, noise=rows.noise[:, place], settings=rows.settings[:, min(place, 1)],
        inputs=rows.inputs, out=out, **following._asdict(), stride=stride,
        unconditional=stride * texts * (copies > 1), vocabulary=vocabulary,
        noise_stride=rows.noise.stride(0), settings_stride=rows.settings.stride(0),
        out_stride=out.stride(0), projected_stride=following.projected.stride(0), width=width, texts=texts,
        pad=pad, bos=bos, **columns(Dia2Numbers._fields), MASKED=pad >= 0,
        FOLLOWS=follows is not None, COPIES=copies,
        BLOCK=max(16, triton.next_power_of_2(vocabulary)), COLS=triton.next_power_of_2(max(1, width)),
        num_warps=DRAW_WARPS if vocabulary > 256 else 1, enable_fp_fusion=False, **pdl(logits.device),
    )  # fmt: skip


@jit
def _embed(
    inputs, codes, text, nothing, table, x, places, positions, vocabulary, width, texts,
    INPUTS: tl.constexpr, COPIES: tl.constexpr, STREAMS: tl.constexpr, BLOCK: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    item = tl.program_id(0)
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = col < width
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    place, position = tl.load(inputs + texts + item), tl.load(inputs + 2 * texts + item)
    own = tl.load(text + item * width + col, mask=inside, other=0.0)
    kind = own.dtype
    own = own.to(tl.float32)
    other = tl.load(nothing + col, mask=inside, other=0.0).to(tl.float32)
    for stream in tl.static_range(STREAMS):
        given = tl.load(inputs + (INPUTS + stream) * texts + item)
        drawn = tl.maximum(tl.load(codes + item * STREAMS + stream), 0)
        row = stream * vocabulary + tl.where(given < 0, drawn, given)
        read = tl.load(table + row * width + col, mask=inside, other=0.0).to(tl.float32)
        own = (own + read).to(kind).to(tl.float32)
        other = (other + read).to(kind).to(tl.float32)
    for copy in tl.static_range(COPIES):
        at = copy * texts + item
        total = own if copy == 0 else other
        tl.store(x + at * width + col, total.to(kind), mask=inside)
        if tl.program_id(1) == 0:
            tl.store(places + at, place)
            tl.store(positions + at, position)


@jit
def _draw(
    logits, noise, settings, inputs, out, projected, table, x,
    stride, unconditional, vocabulary, noise_stride, settings_stride, out_stride, projected_stride,
    width, texts, pad, bos,
    FILTER_K: tl.constexpr, NEAR: tl.constexpr, FACTOR: tl.constexpr, TEMPERATURE: tl.constexpr,
    TOP_K: tl.constexpr, SETTINGS: tl.constexpr, MASKED: tl.constexpr, FOLLOWS: tl.constexpr,
    COPIES: tl.constexpr, BLOCK: tl.constexpr, COLS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Draw for one text. unconditional: the distance to its other row of logits."""
    item, ids = tl.program_id(0), tl.arange(0, BLOCK)
    inside = ids < vocabulary
    takes_part = tl.load(inputs + item) >= 0
    numbers = settings + item * settings_stride
    filter_k, near = tl.load(numbers + FILTER_K).to(tl.int32), tl.load(numbers + NEAR)
    factor, temperature = tl.load(numbers + FACTOR), tl.load(numbers + TEMPERATURE)
    top_k = tl.load(numbers + TOP_K).to(tl.int32)
    gumbel = tl.load(noise + item * noise_stride + ids, mask=inside, other=0.0)
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    at = logits + item * stride + ids
    cond = tl.load(at, mask=inside, other=0.0).to(tl.float32)
    uncond = tl.load(at + unconditional, mask=inside, other=0.0).to(tl.float32)
    wrong = (cond - cond != 0) | (uncond - uncond != 0)  # NaN or infinity
    finite = tl.max(wrong.to(tl.int32), axis=0) == 0
    difference = cond - uncond
    guided = tl.where(near > 0, cond - difference * factor, uncond + factor * difference)
    guided = tl.where(inside, guided, -float("inf"))
    allowed = tl.where(inside, cond, -float("inf"))
    if MASKED:
        allowed = tl.where((ids == pad) | (ids == bos), -float("inf"), allowed)
    scores = top_k_kept(guided, allowed, filter_k, vocabulary)
    if MASKED:  # where guidance picks only ids that are no codes, every code is a candidate
        scores = tl.where(tl.max(scores, axis=0) == -float("inf"), allowed, scores)
    if temperature > 0:
        scores = first_k_kept(tl.div_rn(scores, temperature), top_k, vocabulary) - gumbel
    chosen = tl.argmax(scores, axis=0).to(tl.int32)
    tl.store(out + item * out_stride, tl.where(finite, chosen, -1), mask=takes_part)
    if FOLLOWS:
        col = tl.arange(0, COLS)
        there = col < width
        row = tl.where(finite, chosen, 0).to(tl.int64)
        read = tl.load(table + row * width + col, mask=there, other=0.0).to(tl.float32)
        for copy in tl.static_range(COPIES):
            place = copy * texts + item
            own = tl.load(projected + place * projected_stride + col, mask=there, other=0.0)
            total = (own.to(tl.float32) + read).to(own.dtype)
            tl.store(x + place * width + col, total, mask=there)
