"""Sampling of MetaVoice's next token, and of its second stage's codes.

The rules on MLX arrays; tests/tts_core/metavoice/sampling_rules.py defines them in plain NumPy.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

from mlx_port.guard import marked
from tts_core.metavoice.sampling import LOWEST_TEMPERATURE, FirstStageSampling


def guide(rows: Sequence[mx.array], cfg_scale: float, text_cfg_scale: float = 1.0) -> mx.array:
    """Apply classifier-free guidance on speaker and text. One to three rows, (..., V) each."""
    if len(rows) == 1:
        return rows[0]
    guided = (cfg_scale + text_cfg_scale - 1) * rows[0] + (1 - cfg_scale) * rows[1]
    return guided + (1 - text_cfg_scale) * rows[2] if len(rows) == 3 else guided


def keep_top_k(logits: mx.array, top_k: int | None) -> mx.array:
    """Keep the `top_k` largest of each row, else -inf; ties at the cut stay. (..., V)."""
    if top_k is None or top_k >= logits.shape[-1]:
        return logits
    edge = mx.topk(logits, top_k, axis=-1).min(axis=-1, keepdims=True)
    return mx.where(logits < edge, -mx.inf, logits)


def probabilities(logits: mx.array, sampling: FirstStageSampling) -> mx.array:
    """Compute the probabilities of a token by the rule in `sampling`. (..., V) float32 → same."""
    rule = probabilities_fast if sampling.rule == "fast" else probabilities_slow
    return rule(logits, sampling.temperature, sampling.top_p, sampling.top_k)


def probabilities_fast(
    logits: mx.array, temperature: float, top_p: float | None, top_k: int | None
) -> mx.array:
    """Apply the fast rule: from the least probable up, drop ids while their sum is at most 1 - top_p.

    (..., V) float32 → same. The most probable id always stays.
    """
    logits = keep_top_k(logits / max(temperature, LOWEST_TEMPERATURE), top_k)
    if top_p is not None:
        rising = mx.sort(logits, axis=-1)
        kept = mx.cumsum(mx.softmax(rising, axis=-1), axis=-1) > 1 - top_p
        best = mx.arange(kept.shape[-1]) == kept.shape[-1] - 1
        keep = at_the_edge(logits, rising, kept | best, last=True)
        logits = mx.where(keep, logits, -mx.inf)
    return mx.softmax(logits, axis=-1)


def probabilities_slow(
    logits: mx.array, temperature: float, top_p: float | None, top_k: int | None
) -> mx.array:
    """Apply the slow rule, which the second stage uses too. (..., V) float32 → same."""
    probs = mx.softmax(keep_top_k(logits / temperature, top_k), axis=-1)
    return probs if top_p is None else keep_top_p(probs, top_p)


def keep_top_p(probs: mx.array, top_p: float) -> mx.array:
    """Keep the most probable ids until their sum exceeds `top_p`, including the one that crosses it, and
    scale their sum to 1. (..., V) float32 → same.
    """
    falling = -mx.sort(-probs, axis=-1)
    held = mx.cumsum(falling, axis=-1)
    kept = mx.concatenate([mx.ones_like(held[..., :1]).astype(mx.bool_), held[..., :-1] <= top_p], axis=-1)
    keep = at_the_edge(probs, falling, kept, last=False)
    probs = mx.where(keep, probs, 0.0)
    return probs / probs.sum(axis=-1, keepdims=True)


def at_the_edge(x: mx.array, ordered: mx.array, kept: mx.array, *, last: bool) -> mx.array:
    """Map `kept`, a selection of the sorted values `ordered`, back to `x` as a stable sort would, on any
    backend. (..., V) each → (..., V) bool.

    last: of equal values at the cut keep the last ones, else the first ones.
    """
    edge = mx.where(kept, ordered, mx.inf).min(axis=-1, keepdims=True)
    above, equal = x > edge, (x == edge).astype(x.dtype)
    room = kept.astype(x.dtype).sum(axis=-1, keepdims=True) - above.astype(x.dtype).sum(
        axis=-1, keepdims=True
    )
    rank = mx.cumsum(equal, axis=-1)  # rank among equal values, from 1
    if last:
        rank = equal.sum(axis=-1, keepdims=True) + 1 - rank
    return above | ((equal > 0) & (rank <= room))


def race(probs: mx.array, waiting: mx.array | None) -> mx.array:
    """Draw one id per row with its probability: the first arrival, for exponential waiting times.

    (..., V) each → (...) uint32. Without waiting times the most probable one.
    """
    return mx.argmax(probs if waiting is None else probs / waiting, axis=-1)


def draw_ids(logits: mx.array, waiting: mx.array | None, sampling: FirstStageSampling) -> mx.array:
    """Draw the next id of each text; -1 for one whose logits are not all finite.

    (G, B, V) logits of the rows of guidance, (B, V) waiting times or None for the most probable → (B,).
    """
    rows = [row.squeeze(0) for row in mx.split(logits, len(logits))]
    guided = guide(rows, sampling.cfg_scale, sampling.text_cfg_scale)
    ids = race(probabilities(guided, sampling), waiting)
    return marked(ids[:, None], mx.flatten(logits, 0, 1)[:, None])[:, 0]
