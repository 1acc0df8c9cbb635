"""Sampling of Qwen3-TTS's codes: penalty and bans for the first one, then candidates and a draw.

Source: QwenLM/Qwen3-TTS@022e286, with the filters of transformers 4.57.3, both Apache-2.0.
No known difference: ties at the last place of top_k all stay.
"""

from __future__ import annotations

import mlx.core as mx

from tts_core.qwen3.config import SUPPRESSED
from tts_core.qwen3.sampling import LEAST_FRAMES, Qwen3Choice


def penalize(logits: mx.array, seen: mx.array, penalty: float) -> mx.array:
    """Make ids that were drawn before less likely. logits, seen: (..., V), the latter booleans."""
    return mx.where(seen, mx.where(logits < 0, logits * penalty, logits / penalty), logits)


def allow(logits: mx.array, eos: int, step: int | mx.array) -> mx.array:
    """Keep codes and, from the third step on, the end of speech. (..., V).

    step: a number, or (..., 1).
    """
    ids = mx.arange(logits.shape[-1])
    allowed = mx.where(ids == eos, step >= LEAST_FRAMES, ids < logits.shape[-1] - SUPPRESSED)
    return mx.where(allowed, logits, -mx.inf)


def candidates(logits: mx.array, choice: Qwen3Choice) -> mx.array:
    """Compute the logits that are sampled from, or whose argmax is taken. (..., V) float32."""
    if choice.is_greedy:
        return logits
    logits = logits / choice.temperature
    if 0 < choice.top_k < logits.shape[-1]:
        edge = mx.topk(logits, choice.top_k, axis=-1).min(axis=-1, keepdims=True)
        logits = mx.where(logits < edge, -mx.inf, logits)
    if choice.top_p < 1:
        order = mx.argsort(logits, axis=-1)
        rising = mx.take_along_axis(logits, order, axis=-1)
        dropped = mx.softmax(rising, axis=-1).cumsum(axis=-1) <= 1 - choice.top_p
        dropped[..., -1] = False
        dropped = mx.put_along_axis(mx.zeros_like(dropped), order, dropped, axis=-1)
        logits = mx.where(dropped, -mx.inf, logits)
    return logits


def draw(logits: mx.array, choice: Qwen3Choice, uniform: mx.array | None) -> mx.array:
    """Choose one id per row from `candidates`, by the Gumbel maximum unless greedy. (..., V) → (...) int32.

    uniform: (..., V); may be None if greedy.
    """
    if choice.is_greedy or uniform is None:
        return logits.argmax(axis=-1).astype(mx.int32)
    return (logits - mx.log(-mx.log(uniform))).argmax(axis=-1).astype(mx.int32)
