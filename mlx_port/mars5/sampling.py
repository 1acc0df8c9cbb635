"""Drawing MARS5's next id from logits, all of it on the device.

Upstream: Camb-ai/MARS5-TTS@84697c8 (AGPL-3.0); written from a description, no code of it was used.
Differs from upstream: which of several equal ids a nucleus cut keeps does not hang on a sort's order (all are
kept); ids are drawn by the inverse of the cumulative distribution, from one number each.
"""

from __future__ import annotations

import mlx.core as mx

from tts_core.mars5.options import Mars5Options
from tts_core.mars5.sampling import TYPICAL_OFF


def occurrences(ids: mx.array, vocab_size: int) -> mx.array:
    """How often each id is among `ids`; `vocab_size` itself stands where none is. (B, N) → (B, V) float32."""
    counts = mx.zeros((ids.shape[0], vocab_size + 1))
    rows = mx.arange(ids.shape[0])[:, None]
    return counts.at[rows, ids].add(mx.ones(ids.shape))[:, :vocab_size]


def penalize_repeats(logits: mx.array, counts: mx.array, options: Mars5Options) -> mx.array:
    """Lower ids that occurred: by their number, and once more for being there. (B, V) each."""
    return logits - counts * options.freq_penalty - (counts > 0) * options.presence_penalty


def forbid_text(logits: mx.array, lowest: int) -> mx.array:
    """-inf below id `lowest`. (B, V)."""
    return mx.where(mx.arange(logits.shape[-1]) < lowest, -mx.inf, logits)


def penalize_end(logits: mx.array, end: int, penalty: mx.array) -> mx.array:
    """Lower the logit of id `end`. (B, V); penalty: one number."""
    ids = mx.arange(logits.shape[-1])
    return logits - (ids == end) * penalty.astype(logits.dtype)


def keep_top(logits: mx.array, top_k: int, top_p: float) -> mx.array:
    """-inf where an id is not among the `top_k`, or the more probable ones hold more than `top_p`. (B, V).

    One sort serves both. Ties at an edge stay.
    """
    limited = 0 < top_k < logits.shape[-1]
    if not limited and top_p >= 1:
        return logits
    falling = -mx.sort(-logits, axis=-1)
    edge = falling[..., top_k - 1 : top_k] if limited else falling[..., -1:]
    if top_p < 1:
        held = mx.where(falling < edge, -mx.inf, falling)
        sums = mx.cumsum(mx.softmax(held, axis=-1), axis=-1)
        beyond = mx.concatenate([mx.zeros_like(sums[..., :1]), sums[..., :-1]], axis=-1) > top_p
        edge = mx.maximum(edge, mx.where(beyond, mx.inf, held).min(axis=-1, keepdims=True))
    return mx.where(logits < edge, -mx.inf, logits)


def keep_typical(logits: mx.array, mass: float) -> mx.array:
    """-inf where ids whose surprise is nearer to the expected one already hold `mass`. (B, V)."""
    if mass > TYPICAL_OFF:
        return logits
    surprise = -_log_softmax(logits)
    probs = mx.exp(-surprise)
    expected = mx.where(probs > 0, probs * surprise, 0.0).sum(axis=-1, keepdims=True)
    distance = mx.abs(surprise - expected)
    order = mx.argsort(distance, axis=-1)
    rising = mx.take_along_axis(distance, order, axis=-1)
    enough = mx.cumsum(mx.take_along_axis(probs, order, axis=-1), axis=-1) >= mass
    edge = mx.where(enough, rising, mx.inf).min(axis=-1, keepdims=True)
    return mx.where(distance > edge, -mx.inf, logits)


def log_probabilities(
    logits: mx.array, counts: mx.array, penalty: mx.array, options: Mars5Options, *, lowest: int, end: int
) -> mx.array:
    """The logarithms of what an id is drawn with. (B, V) float32 → same.

    counts: occurrences among the last ids; zeros where nothing is held against repeats yet.
    penalty: one number, what the end loses now. lowest: the first id that may be drawn. end: ends speech.
    """
    logits = penalize_repeats(logits, counts, options)
    logits = forbid_text(logits, lowest)
    logits = penalize_end(logits, end, penalty)
    if options.temperature == 0:
        return _log_softmax(keep_top(logits, 1, 1.0))
    logits = logits / options.temperature
    logits = keep_top(logits, options.top_k, options.top_p)
    return _log_softmax(keep_typical(logits, options.typical_p))


def draw(log_probs: mx.array, uniform: mx.array) -> mx.array:
    """The first id up to which probabilities hold more than `uniform`. (B, V), one number → (B,) int32."""
    probs = mx.exp(log_probs)
    sums = mx.cumsum(probs, axis=-1)
    possible = probs > 0  # a parallel sum may fall by a rounding where nothing is added
    places = mx.arange(probs.shape[-1])
    beyond = mx.logical_and(possible, sums / sums[..., -1:] > uniform)
    first = mx.where(beyond, places, probs.shape[-1]).min(axis=-1)
    return mx.minimum(first, mx.where(possible, places, 0).max(axis=-1))


def _log_softmax(logits: mx.array) -> mx.array:
    """Logarithms of probabilities over the last axis."""
    return logits - mx.logsumexp(logits, axis=-1, keepdims=True)
