"""Sampling of MARS5's next id from logits, entirely on the device.

Upstream: Camb-ai/MARS5-TTS@84697c8 (AGPL-3.0); written from a description, none of its code was used.
Differs from upstream: a nucleus cut keeps all of several equal ids, independent of the order of a sort; ids
are drawn with the inverse cumulative distribution, from one number each.
"""

from __future__ import annotations

import mlx.core as mx

from tts_core.mars5.options import Mars5Options
from tts_core.mars5.sampling import TYPICAL_OFF, Mars5Numbers

MARK = -1  # replaces an id drawn from NaN or infinite logits


def occurrences(ids: mx.array, vocab_size: int) -> mx.array:
    """Count each id in `ids`; the value `vocab_size` marks an empty place. (B, N) → (B, V) float32."""
    counts = mx.zeros((ids.shape[0], vocab_size + 1))
    rows = mx.arange(ids.shape[0])[:, None]
    return counts.at[rows, ids].add(mx.ones(ids.shape))[:, :vocab_size]


def penalize_repeats(logits: mx.array, counts: mx.array, options: Mars5Numbers | Mars5Options) -> mx.array:
    """Lower the logits of ids that occurred: by count, plus a constant for presence. (B, V) each."""
    return logits - counts * options.freq_penalty - (counts > 0) * options.presence_penalty


def forbid_text(logits: mx.array, lowest: int) -> mx.array:
    """Set logits below id `lowest` to -inf. (B, V)."""
    return mx.where(mx.arange(logits.shape[-1]) < lowest, -mx.inf, logits)


def penalize_end(logits: mx.array, end: int, penalty: mx.array) -> mx.array:
    """Lower the logit of id `end`. (B, V); penalty: one number, or one per row, (B, 1)."""
    ids = mx.arange(logits.shape[-1])
    return logits - (ids == end) * penalty.astype(logits.dtype)


def keep_top(logits: mx.array, top_k: int, top_p: float) -> mx.array:
    """Set to -inf ids outside the `top_k`, or whose more probable ids sum to more than `top_p`. (B, V).

    One sort serves both. Ties at a cut stay.
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
    """Set to -inf ids once those with surprise nearer to the expected one sum to `mass`. (B, V)."""
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
    logits: mx.array,
    counts: mx.array,
    penalty: mx.array,
    options: Mars5Numbers | Mars5Options,
    *,
    lowest: int,
    end: int,
) -> mx.array:
    """Compute the log-probabilities that an id is drawn from. (B, V) float32 → same.

    counts: occurrences among the last ids; zeros while repeats have no penalty yet.
    penalty: lowers the end's logit, one number or (B, 1).
    lowest: first id that may be drawn.
    end: id of the end.
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
    """Draw the first id whose cumulative probability exceeds `uniform`. (B, V), () or (B, 1) → (B,) int32."""
    probs = mx.exp(log_probs)
    sums = mx.cumsum(probs, axis=-1)
    possible = probs > 0  # a parallel sum may fall by a rounding where nothing is added
    places = mx.arange(probs.shape[-1])
    beyond = mx.logical_and(possible, sums / sums[..., -1:] > uniform)
    first = mx.where(beyond, places, probs.shape[-1]).min(axis=-1)
    return mx.minimum(first, mx.where(possible, places, 0).max(axis=-1))


def draw_ids(
    logits: mx.array,
    seen: mx.array,
    penalty: mx.array,
    uniform: mx.array,
    options: Mars5Numbers | Mars5Options,
    *,
    lowest: int,
    end: int,
) -> mx.array:
    """Draw an id from each row of logits, (B, V) → (B,); -1 where they are not all finite.

    seen: (B, N) ids whose repetition is penalized.  penalty, uniform: one number, or one per row, (B, 1).
    """
    counts = occurrences(seen, logits.shape[-1])
    scores = log_probabilities(logits, counts, penalty, options, lowest=lowest, end=end)
    return mx.where(mx.isfinite(logits).all(axis=-1), draw(scores, uniform), MARK)


def _log_softmax(logits: mx.array) -> mx.array:
    """Compute log-softmax over the last axis."""
    return logits - mx.logsumexp(logits, axis=-1, keepdims=True)
