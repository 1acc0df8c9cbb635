"""Dia's sampling rules as slow, simple NumPy: the definition that both fast samplers are tested against.

Source: specs of nari-labs/dia at 876125e (0626) and 2811af1 (v0.1); vectors of the originals are in
tests/data/golden.

Ties at the edge of top-k or top-p are all kept, so that the outcome never depends on a sort's order.
"""

from __future__ import annotations

import numpy as np

from tts_core.dia.options import V01_EOS_SCALE, DiaSampling


def guide(cond: np.ndarray, uncond: np.ndarray, cfg_scale: float) -> np.ndarray:
    """Classifier-free guidance centered on the conditional logits: cond + scale * (cond - uncond)."""
    return cond + cfg_scale * (cond - uncond)


def keep_top_k(ranking: np.ndarray, logits: np.ndarray, top_k: int) -> np.ndarray:
    """`logits` where `ranking` is among its row's `top_k` largest, -inf elsewhere. (..., V) each."""
    if not 0 < top_k < ranking.shape[-1]:
        return logits
    edge = np.sort(ranking, axis=-1)[..., -top_k, None]
    return np.where(ranking >= edge, logits, -np.inf)


def keep_top_p(logits: np.ndarray, top_p: float) -> np.ndarray:
    """Drop ids whose more probable predecessors already hold more than `top_p` of the probability.

    (..., V).
    """
    if top_p >= 1:
        return logits
    probs = softmax(logits)
    falling = -np.sort(-probs, axis=-1)
    before = np.cumsum(falling, axis=-1) - falling
    edge = np.min(np.where(before <= top_p, falling, np.inf), axis=-1, keepdims=True)
    return np.where(probs >= edge, logits, -np.inf)


def forbid_special(logits: np.ndarray, eos: int) -> np.ndarray:
    """-inf above EOS everywhere, and at EOS in every channel but the first. (..., C, V)."""
    ids = np.arange(logits.shape[-1])
    channel = np.arange(logits.shape[-2])[:, None]
    return np.where((ids > eos) | ((ids == eos) & (channel > 0)), -np.inf, logits)


def eos_only_as_argmax(logits: np.ndarray, eos: int) -> np.ndarray:
    """Make EOS certain in rows whose argmax it is, and impossible in others. (..., V)."""
    ids = np.arange(logits.shape[-1])
    best = np.argmax(logits, axis=-1)[..., None] == eos
    return np.where(np.where(best, ids < eos, ids == eos), -np.inf, logits)


def softmax(logits: np.ndarray) -> np.ndarray:
    """Softmax over the last axis in the input's precision."""
    shifted = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return shifted / shifted.sum(axis=-1, keepdims=True)


def candidates_0626(cond: np.ndarray, uncond: np.ndarray, sampling: DiaSampling, eos: int) -> np.ndarray:
    """Logits that the 0626 rule draws from, or takes the argmax of at temperature 0.

    (..., C, V) float32.
    """
    # upstream samples from the conditional logits; guidance only picks the candidates
    guided = guide(cond, uncond, sampling.cfg_scale)
    allowed = forbid_special(cond, eos)
    logits = keep_top_k(guided, allowed, sampling.top_k)
    # upstream fails if guidance picks only forbidden ids; here every allowed id is then a candidate
    logits = np.where(np.isneginf(logits).all(axis=-1, keepdims=True), allowed, logits)
    if sampling.temperature == 0:
        return logits
    logits = eos_only_as_argmax(logits / np.float32(sampling.temperature), eos)
    return keep_top_p(keep_top_k(logits, logits, sampling.top_k), sampling.top_p)


def candidates_v01(cond: np.ndarray, uncond: np.ndarray, sampling: DiaSampling, eos: int) -> np.ndarray:
    """Logits that the v0.1 rule draws from: guided, with channel 0's EOS scaled. (..., C, V) float32."""
    logits = forbid_special(guide(cond, uncond, sampling.cfg_scale), eos)
    logits[..., 0, eos] *= np.float32(V01_EOS_SCALE)
    if sampling.temperature == 0:
        return logits
    logits = logits / np.float32(sampling.temperature)
    ids = np.arange(logits.shape[-1])
    not_best = np.argmax(logits, axis=-1)[..., None] != eos
    logits = np.where(not_best & (ids == eos), -np.inf, logits)
    return keep_top_p(keep_top_k(logits, logits, sampling.top_k), sampling.top_p)


def draw(logits: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """One id per row with probability softmax(logits), by the Gumbel maximum.

    (..., V) each, uniform in (0, 1).
    """
    return np.argmax(logits - np.log(-np.log(uniform)), axis=-1).astype(np.int32)
