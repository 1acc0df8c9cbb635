"""Draws of ids from rows of logits as one Triton kernel, for all models.

It applies the rules of a `Sampler` as torch_ref.sampling does, and ends with a function of the model, which
takes the id. Rules that a sampler does not name are not compiled.
"""

# pyright: reportInvalidTypeForm=false
# (Triton reads the kernel's annotations)

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from torch_ref.cuda.filters import (
    falling_kept,
    first_k_kept,
    rising_kept,
    top_k_kept,
    top_p_kept,
    typical_kept,
)
from torch_ref.cuda.triton import jit, pdl, tl, triton
from tts_core.nn.sampling import Sampler


class DrawRows(NamedTuple):
    """What a draw of B texts reads.

    logits: (R, C·V), with any distance between rows.
    noise: (ring, B, C·V) float32, log(-log(u)) of uniform numbers, by step; (ring, B) uniform ones for the
    inverse distribution.
    step: (B,), ids that were drawn so far; -1 for a text that draws nothing.
    own: (B, G) int32, rows of each text's guidance; -1 is the first of them. None: each has the row of its
    number.
    allowed: (C, V) int8, 1 for ids that may be drawn.
    counts: (B, V), how often each id was drawn among the last ones.
    penalties: (B, N) float32, of the end, by step; past them the last.
    """

    logits: Tensor
    noise: Tensor
    step: Tensor
    own: Tensor | None = None
    allowed: Tensor | None = None
    counts: Tensor | None = None
    penalties: Tensor | None = None


class DrawSizes(NamedTuple):
    """Numbers of a draw: ids of a row, distances between rows, the id of the end."""

    vocabulary: int
    logits_row: int
    noise_ring: int
    noise_step: int
    noise_text: int
    table_row: int
    penalties_row: int
    end: int


def draw_rows(
    rows: DrawRows,
    table: Tensor,
    sampler: Sampler,
    after: Any,
    state: NamedTuple,
    *,
    channels: int = 1,
    lowest: int = 0,
    end: int = -1,
    penalties_above: int = -1,
    wide: int = 1,
    warps: int = 0,
) -> None:
    """Draw an id for each text and channel.

    table: (B, N) float32, with any distance between rows.
    after: function of kernels, after(state, text, channel, id, finite, GROUPS, WIDE); the id is 0 where
    logits are not finite.
    lowest: ids from it on are drawn.
    penalties_above: up to this many drawn ids, repetition is not penalized.
    wide: numbers that `after` works on at once; a power of two follows.
    """
    texts, vocabulary = len(rows.step), rows.logits.shape[1] // channels
    sizes = DrawSizes(
        vocabulary=vocabulary,
        logits_row=rows.logits.stride(0),
        noise_ring=len(rows.noise),
        noise_step=rows.noise.stride(0),
        noise_text=rows.noise.stride(1),
        table_row=table.stride(0),
        penalties_row=0 if rows.penalties is None else rows.penalties.stride(0),
        end=end,
    )
    _draw_rows[texts, channels](
        rows=rows, table=sampler.named(table), sizes=sizes, state=state, RULES=sampler.rules,
        PICK=sampler.pick, END_SCALE=sampler.end_scale, LOWEST=lowest, ABOVE=penalties_above,
        GROUPS=1 if rows.own is None else rows.own.shape[1], AFTER=after,
        WIDE=triton.next_power_of_2(wide), BLOCK=max(16, triton.next_power_of_2(vocabulary - lowest)),
        num_warps=warps or (8 if vocabulary > 256 else 1), enable_fp_fusion=False, **pdl(table.device),
    )  # fmt: skip


def own_rows(texts: int, device: torch.device) -> Tensor:
    """Return each text's rows where all unconditional ones follow the conditional ones. → (B, 2) int32."""
    return torch.arange(2 * texts, dtype=torch.int32, device=device).unflatten(0, (2, -1)).T.contiguous()


@jit
def _draw_rows(
    rows, table, sizes, state, RULES: tl.constexpr, PICK: tl.constexpr, END_SCALE: tl.constexpr,
    LOWEST: tl.constexpr, ABOVE: tl.constexpr, GROUPS: tl.constexpr, AFTER: tl.constexpr,
    WIDE: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    text, channel, index = tl.program_id(0), tl.program_id(1), tl.arange(0, BLOCK)
    ids = LOWEST + index
    inside, step = ids < sizes.vocabulary, tl.load(rows.step + text)
    numbers = rows.noise + (tl.maximum(step, 0) % sizes.noise_ring).to(tl.int64) * sizes.noise_step
    numbers += text * sizes.noise_text + channel * sizes.vocabulary
    if PICK == "gumbel":  # noqa: SIM108
        noise = tl.load(numbers + ids, mask=inside, other=0.0)
    else:
        noise = tl.load(numbers)
    temperature = tl.load(table.temperature + text * sizes.table_row)  # and its line, for the other columns
    allowed, counts, penalty = inside, index, 0.0
    if rows.allowed is not None:
        allowed = tl.load(rows.allowed + channel * sizes.vocabulary + ids, mask=inside, other=0) > 0
    if rows.counts is not None:
        counts = tl.load(rows.counts + text * sizes.vocabulary + ids, mask=inside & (step > ABOVE), other=0)
    if rows.penalties is not None:
        now = tl.minimum(tl.maximum(step, 0), sizes.penalties_row - 1)
        penalty = tl.load(rows.penalties + text * sizes.penalties_row + now)
    at = rows.logits + channel * sizes.vocabulary
    if GROUPS == 1:
        first = at + text * sizes.logits_row
        second, third = first, first
    else:
        row = tl.load(rows.own + text * GROUPS)
        other = tl.load(rows.own + text * GROUPS + 1)
        last = tl.load(rows.own + text * GROUPS + GROUPS - 1)
        first = at + row * sizes.logits_row
        second = at + tl.where(other < 0, row, other) * sizes.logits_row
        third = at + tl.where(last < 0, row, last) * sizes.logits_row
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    if step < 0:
        return
    cond = tl.load(first + ids, mask=inside, other=0.0).to(tl.float32)
    wrong = (cond - cond != 0).to(tl.int32)  # NaN or infinity
    for start in range(0, LOWEST, BLOCK):  # ids below, which are not drawn, but finite
        below = tl.load(first + start + index, mask=start + index < LOWEST, other=0.0).to(tl.float32)
        wrong |= (below - below != 0).to(tl.int32)
    uncond, bare = cond, cond
    if GROUPS > 1:
        uncond = tl.load(second + ids, mask=inside, other=0.0).to(tl.float32)
        wrong |= (uncond - uncond != 0).to(tl.int32)
    if GROUPS > 2:
        bare = tl.load(third + ids, mask=inside, other=0.0).to(tl.float32)
        wrong |= (bare - bare != 0).to(tl.int32)
    finite = tl.max(wrong, axis=0) == 0
    scores, guided = tl.where(inside, cond, -float("inf")), cond
    for rule in tl.static_range(len(RULES)):
        scores, guided = _apply(
            tl.constexpr(RULES[rule]), scores, guided, cond, uncond, bare, ids, inside, allowed, counts,
            penalty, temperature, step, table, text * sizes.table_row, sizes, END_SCALE, LOWEST,
            rows.allowed is not None,
        )  # fmt: skip
    if PICK == "gumbel":
        chosen = LOWEST + tl.argmax(scores - tl.where(temperature > 0, noise, 0.0), axis=0)
    else:
        weights = tl.exp(scores - tl.max(scores, axis=0))
        sums = tl.cumsum(weights, axis=0)
        whole = tl.sum(tl.where(index == BLOCK - 1, sums, 0.0), axis=0)
        possible = weights > 0
        beyond = tl.min(tl.where(possible & (sums / whole > noise), ids, sizes.vocabulary), axis=0)
        chosen = tl.minimum(beyond, tl.max(tl.where(possible, ids, 0), axis=0))
    AFTER(state, text, channel, tl.where(finite, chosen, 0).to(tl.int32), finite, GROUPS, WIDE)


@jit
def _apply(
    RULE: tl.constexpr, scores, guided, cond, uncond, bare, ids, inside, allowed, counts,
    penalty, temperature, step, table, at, sizes, END_SCALE: tl.constexpr, LOWEST: tl.constexpr,
    FORBIDS: tl.constexpr,
):  # fmt: skip
    """Apply the rule of this name. at: of the text's settings in their columns.

    Returns the scores, and the logits that guidance computed.
    """
    size, is_end = sizes.vocabulary, ids == sizes.end
    if RULE == "guidance":
        guided = cond + tl.load(table.cfg_scale + at) * (cond - uncond)
        guided = tl.where(inside, guided, -float("inf"))
    elif RULE == "nearer_guidance":
        start = tl.where(tl.load(table.from_conditional + at) > 0, cond, uncond)
        guided = start + tl.load(table.factor + at) * (cond - uncond)
        guided = tl.where(inside, guided, -float("inf"))
    elif RULE == "three_way_guidance":
        scores = tl.load(table.full + at) * cond + tl.load(table.speaker + at) * uncond
        scores = scores + tl.load(table.textual + at) * bare
        scores = tl.where(inside, scores, -float("inf"))
    elif RULE == "guided_logits":
        scores = guided
    elif RULE == "allowed_ids":
        scores = tl.where(allowed, scores, -float("inf"))
    elif RULE == "guided_top_k":
        scores = _candidates(guided, scores, tl.load(table.top_k + at).to(tl.int32), size, FORBIDS)
    elif RULE == "cfg_filter_k":
        scores = _candidates(guided, scores, tl.load(table.cfg_filter_k + at).to(tl.int32), size, FORBIDS)
    elif RULE == "repetition_penalty":
        factor = tl.load(table.repetition_penalty + at)
        penalized = tl.where(scores < 0, scores * factor, tl.div_rn(scores, factor))
        scores = tl.where(counts > 0, penalized, scores)
    elif RULE == "freq_penalty":
        scores = scores - counts.to(tl.float32) * tl.load(table.freq_penalty + at)
    elif RULE == "presence_penalty":
        scores = scores - tl.where(counts > 0, tl.load(table.presence_penalty + at), 0.0)
    elif RULE == "min_tokens":
        early = step < tl.load(table.min_tokens + at).to(tl.int32)
        scores = tl.where(is_end & early, -float("inf"), scores)
    elif RULE == "end_penalty":
        scores = scores - tl.where(is_end, penalty, 0.0)
    elif RULE == "end_scale":
        scores = tl.where(is_end, scores * END_SCALE, scores)
    elif RULE == "end_exactly_if_best":
        ends = LOWEST + tl.argmax(scores, axis=0) == sizes.end
        scores = tl.where(is_end == ends, scores, -float("inf"))
    elif RULE == "end_only_if_best":
        ends = LOWEST + tl.argmax(scores, axis=0) == sizes.end
        scores = tl.where(is_end & (ends == 0), -float("inf"), scores)
    elif RULE == "temperature":
        scores = tl.div_rn(scores, tl.where(temperature > 0, temperature, 1.0))
    elif RULE == "top_k":
        scores = top_k_kept(scores, scores, tl.load(table.top_k + at).to(tl.int32), size)
    elif RULE == "first_top_k":
        scores = first_k_kept(scores, tl.load(table.first_top_k + at).to(tl.int32), size)
    elif RULE == "top_p":
        scores = top_p_kept(scores, tl.load(table.top_p + at))
    elif RULE == "first_top_p":
        scores = falling_kept(scores, tl.load(table.first_top_p + at))
    elif RULE == "rising_top_p":
        scores = rising_kept(scores, tl.load(table.rising_top_p + at))
    elif RULE == "typical_p":
        scores = typical_kept(scores, tl.load(table.typical_p + at))
    else:
        tl.static_assert(False, "no rule of this name")
    return scores, guided


@jit
def _candidates(guided, scores, top_k, vocabulary, FORBIDS: tl.constexpr):
    """Keep the best by guidance; where it picks forbidden ids only, every allowed id is a candidate."""
    kept = top_k_kept(guided, scores, top_k, vocabulary)
    if FORBIDS:
        kept = tl.where(tl.max(kept, axis=0) == -float("inf"), scores, kept)
    return kept
