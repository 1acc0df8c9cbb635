"""Sampling of Dia's next row.

The rules on MLX arrays; tests/tts_core/dia/sampling_rules.py defines them in plain NumPy.
"""

from __future__ import annotations

import mlx.core as mx
import numpy as np

from tts_core.dia.sampling import V01_EOS_SCALE, DiaSampling


def guide(cond: mx.array, uncond: mx.array, cfg_scale: float) -> mx.array:
    """Classifier-free guidance centered on the conditional logits."""
    return cond + cfg_scale * (cond - uncond)


def keep_top_k(ranking: mx.array, logits: mx.array, top_k: int) -> mx.array:
    """Keep `logits` where `ranking` is among its row's `top_k` largest, else -inf; ties at the cut stay."""
    if not 0 < top_k < ranking.shape[-1]:
        return logits
    place = ranking.shape[-1] - top_k
    edge = mx.partition(ranking, place, axis=-1)[..., place : place + 1]
    return mx.where(ranking < edge, -mx.inf, logits)


def keep_top_p(logits: mx.array, top_p: float) -> mx.array:
    """Drop ids whose more probable predecessors sum to more than `top_p`; ties at the cut stay."""
    if top_p >= 1:
        return logits
    probs = mx.softmax(logits, axis=-1)
    falling = -mx.sort(-probs, axis=-1)
    before = mx.cumsum(falling, axis=-1) - falling
    edge = mx.where(before > top_p, mx.inf, falling).min(axis=-1, keepdims=True)
    return mx.where(probs < edge, -mx.inf, logits)


def forbid_special(logits: mx.array, eos: int) -> mx.array:
    """Set logits to -inf above EOS everywhere, and at EOS in every channel but the first. (..., C, V)."""
    ids, channel = _counted(logits.shape[-1]), _counted(logits.shape[-2])[:, None]
    return mx.where((ids > eos) | ((ids == eos) & (channel > 0)), -mx.inf, logits)


def candidates_0626(cond: mx.array, uncond: mx.array, sampling: DiaSampling, eos: int) -> mx.array:
    """Compute the logits that the 0626 rule samples from, or whose argmax it takes at temperature 0.

    (..., C, V) float32.
    """
    # upstream samples from the conditional logits; guidance only picks the candidates
    guided = guide(cond, uncond, sampling.cfg_scale)
    allowed = forbid_special(cond, eos)
    logits = keep_top_k(guided, allowed, sampling.top_k)
    # if guidance picks only forbidden ids, upstream fails; here every allowed id is then a candidate
    logits = mx.where(mx.isneginf(logits).all(axis=-1, keepdims=True), allowed, logits)
    if sampling.temperature == 0:
        return logits
    logits = logits / sampling.temperature
    ids = _counted(logits.shape[-1])
    ends = mx.argmax(logits, axis=-1, keepdims=True) == eos
    logits = mx.where(mx.where(ends, ids < eos, ids == eos), -mx.inf, logits)
    return keep_top_p(keep_top_k(logits, logits, sampling.top_k), sampling.top_p)


def candidates_v01(cond: mx.array, uncond: mx.array, sampling: DiaSampling, eos: int) -> mx.array:
    """Compute the logits that the v0.1 rule samples from: guided, channel 0's EOS scaled. (..., C, V)."""
    logits = forbid_special(guide(cond, uncond, sampling.cfg_scale), eos)
    ids, channel = _counted(logits.shape[-1]), _counted(logits.shape[-2])[:, None]
    logits = mx.where((ids == eos) & (channel == 0), logits * V01_EOS_SCALE, logits)
    if sampling.temperature == 0:
        return logits
    logits = logits / sampling.temperature
    not_best = mx.argmax(logits, axis=-1, keepdims=True) != eos
    logits = mx.where(not_best & (ids == eos), -mx.inf, logits)
    return keep_top_p(keep_top_k(logits, logits, sampling.top_k), sampling.top_p)


def draw(logits: mx.array, uniform: mx.array) -> mx.array:
    """Draw one id per row with probability softmax(logits), by the Gumbel maximum.

    (..., V) each → (...) uint32.
    """
    return mx.argmax(logits - mx.log(-mx.log(uniform)), axis=-1)


def _counted(count: int) -> mx.array:
    """0 .. count-1, built on the host: a launch less than mx.arange."""
    return mx.array(np.arange(count, dtype=np.int32))
