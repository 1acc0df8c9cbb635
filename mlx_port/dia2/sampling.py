"""Sampling of Dia2's ids: candidates by guidance, then by probability.

Source: nari-labs/dia2@8687268, Apache-2.0.
Differs from upstream: if guidance picks only ids that are no codes, every code is then a candidate; ties at
the last place of top_k go to the lowest id.
"""

from __future__ import annotations

import mlx.core as mx

from tts_core.dia2.sampling import COLDEST, Dia2Choice


def guide(cond: mx.array, uncond: mx.array, cfg_scale: float) -> mx.array:
    """Classifier-free guidance centered on the unconditional logits, from the nearer end."""
    if abs(cfg_scale) >= 0.5:
        return cond - (cond - uncond) * (1 - cfg_scale)
    return uncond + cfg_scale * (cond - uncond)


def picked(cond: mx.array, uncond: mx.array, choice: Dia2Choice) -> mx.array:
    """Mark the candidates of guidance, with ties at the last place. (..., V) → (..., V) booleans."""
    if not choice.is_guided:
        return mx.ones_like(cond).astype(mx.bool_)
    guided = guide(cond, uncond, choice.cfg_scale)
    return guided >= kth_largest(guided, min(choice.cfg_filter_k, guided.shape[-1]))


def kth_largest(x: mx.array, k: int) -> mx.array:
    """Return the k-th largest number of each row. (..., V) → (..., 1)."""
    place = x.shape[-1] - k
    return mx.partition(x, place, axis=-1)[..., place : place + 1]


def keep_top_k(logits: mx.array, top_k: int) -> mx.array:
    """Keep the `top_k` largest of a row, else -inf; of equal ones the first. (..., V)."""
    if not 0 < top_k < logits.shape[-1]:
        return logits
    edge = kth_largest(logits, top_k)
    above, ties = logits > edge, logits == edge
    room = top_k - above.sum(axis=-1, keepdims=True)
    return mx.where(above | (ties & (mx.cumsum(ties.astype(mx.int32), axis=-1) <= room)), logits, -mx.inf)


def candidates(
    cond: mx.array, uncond: mx.array, choice: Dia2Choice, is_code: mx.array | None = None
) -> mx.array:
    """Compute the logits that are sampled from, or whose argmax is taken at temperature 0.

    (..., V) float32.  is_code: (V,), the ids that may be chosen; None allows all.
    """
    logits = mx.where(picked(cond, uncond, choice), cond, -mx.inf)
    if is_code is not None:
        allowed = mx.where(is_code, cond, -mx.inf)
        logits = mx.where(is_code, logits, -mx.inf)
        logits = mx.where(mx.isneginf(logits).all(axis=-1, keepdims=True), allowed, logits)
    if choice.is_greedy:
        return logits
    return keep_top_k(logits / max(choice.temperature, COLDEST), choice.top_k)


def choose(
    cond: mx.array,
    uncond: mx.array,
    choice: Dia2Choice,
    uniform: mx.array | None,
    is_code: mx.array | None = None,
) -> mx.array:
    """Choose one id per row, by the Gumbel maximum unless greedy. (..., V) → (...) uint32.

    uniform: (..., V); may be None if greedy.
    """
    logits = candidates(cond, uncond, choice, is_code)
    if choice.is_greedy or uniform is None:
        return mx.argmax(logits, axis=-1)
    return mx.argmax(logits - mx.log(-mx.log(uniform)), axis=-1)
