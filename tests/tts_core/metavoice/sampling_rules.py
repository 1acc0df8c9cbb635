"""MetaVoice's sampling rules as slow, simple NumPy: both fast samplers are tested against them.

Source: metavoiceio/metavoice-src, July 2024 (Apache-2.0): the rules of its fast and of its slow inference.
Differs from upstream: all is float32, where the fast path's sums are bfloat16; of equal logits at the edge of
top-p the fast rule keeps those with the highest ids and the slow rule those with the lowest, as a stable sort
does; upstream leaves the choice to its sort.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tts_core.metavoice.inputs import LOWEST_TEMPERATURE
from tts_core.nn.noise import Noise


def guide(rows: Sequence[np.ndarray], cfg_scale: float, text_cfg_scale: float = 1.0) -> np.ndarray:
    """Classifier-free guidance by speaker and text. FirstStageSampling.rows arrays, (..., V) each."""
    if len(rows) == 1:
        return rows[0]
    guided = (cfg_scale + text_cfg_scale - 1) * rows[0] + (1 - cfg_scale) * rows[1]
    return guided + (1 - text_cfg_scale) * rows[2] if len(rows) == 3 else guided


def keep_top_k(logits: np.ndarray, top_k: int | None) -> np.ndarray:
    """The `top_k` largest of each row, -inf elsewhere; ties at the edge stay. (..., V)."""
    if top_k is None or top_k >= logits.shape[-1]:
        return logits
    edge = np.sort(logits, axis=-1)[..., -top_k, None]
    return np.where(logits >= edge, logits, -np.inf)


def probabilities_fast(
    logits: np.ndarray, temperature: float, top_p: float | None, top_k: int | None
) -> np.ndarray:
    """Probabilities of the fast rule: from the least probable up, ids are dropped while their sum is at most
    1 - top_p.

    (..., V) float32 → same. The most probable id always stays.
    """
    logits = keep_top_k(logits / np.float32(max(temperature, LOWEST_TEMPERATURE)), top_k)
    if top_p is not None:
        order = np.argsort(logits, axis=-1, kind="stable")
        rising = softmax(np.take_along_axis(logits, order, axis=-1))
        dropped = np.cumsum(rising, axis=-1) <= np.float32(1 - top_p)
        dropped[..., -1] = False
        back = np.zeros_like(dropped)
        np.put_along_axis(back, order, dropped, axis=-1)
        logits = np.where(back, -np.inf, logits)
    return softmax(logits)


def probabilities_slow(
    logits: np.ndarray, temperature: float, top_p: float | None, top_k: int | None
) -> np.ndarray:
    """Probabilities of the slow rule and the second stage. (..., V) float32 → same."""
    probs = softmax(keep_top_k(logits / np.float32(temperature), top_k))
    return probs if top_p is None else keep_top_p(probs, top_p)


def keep_top_p(probs: np.ndarray, top_p: float) -> np.ndarray:
    """Keep the most probable ids until their sum is above `top_p`, the one that crosses it included.

    The rest are scaled to a sum of 1. (..., V) float32 → same.
    """
    order = np.argsort(-probs, axis=-1, kind="stable")
    held = np.cumsum(np.take_along_axis(probs, order, axis=-1), axis=-1)
    dropped = np.concatenate(
        [np.zeros_like(held[..., :1], bool), held[..., :-1] > np.float32(top_p)], axis=-1
    )
    back = np.zeros_like(dropped)
    np.put_along_axis(back, order, dropped, axis=-1)
    kept = np.where(back, np.float32(0), probs)
    return kept / kept.sum(axis=-1, keepdims=True)


def softmax(logits: np.ndarray) -> np.ndarray:
    """Softmax over the last axis in the input's precision."""
    shifted = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return shifted / shifted.sum(axis=-1, keepdims=True)


def waiting_times(noise: Noise, step: int, shape: tuple[int, ...]) -> np.ndarray:
    """Exponentially distributed numbers for generated row `step`. → float32, > 0."""
    return (-np.log(noise.uniform(step, shape).astype(np.float64))).astype(np.float32)


def race(probs: np.ndarray, waiting: np.ndarray) -> np.ndarray:
    """Draw one id per row with its probability: the first to arrive after exponential waiting times.

    (..., V) each → (...) int32.
    """
    return np.argmax(probs / waiting, axis=-1).astype(np.int32)
