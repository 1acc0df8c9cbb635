"""Sampling of MetaVoice's next token, and of its second stage's codes.

The rules on tensors; tests/tts_core/metavoice/sampling_rules.py defines them in plain NumPy.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from torch_ref.guard import marked
from torch_ref.limits.remedies import first_largest
from tts_core.metavoice.sampling import LOWEST_TEMPERATURE, FirstStageSampling


def guide(rows: Sequence[Tensor], cfg_scale: float, text_cfg_scale: float = 1.0) -> Tensor:
    """Apply classifier-free guidance on speaker and text. One to three rows, (..., V) each."""
    if len(rows) == 1:
        return rows[0]
    guided = (cfg_scale + text_cfg_scale - 1) * rows[0] + (1 - cfg_scale) * rows[1]
    return guided + (1 - text_cfg_scale) * rows[2] if len(rows) == 3 else guided


def keep_top_k(logits: Tensor, top_k: int | None) -> Tensor:
    """Keep the `top_k` largest of each row, else -inf; ties at the cut stay. (..., V)."""
    if top_k is None or top_k >= logits.shape[-1]:
        return logits
    edge = logits.topk(top_k, dim=-1).values[..., -1:]
    return logits.masked_fill(logits < edge, -torch.inf)


def probabilities(logits: Tensor, sampling: FirstStageSampling) -> Tensor:
    """Compute the probabilities of a token by the rule in `sampling`. (..., V) float32 → same."""
    rule = probabilities_fast if sampling.rule == "fast" else probabilities_slow
    return rule(logits, sampling.temperature, sampling.top_p, sampling.top_k)


def probabilities_fast(logits: Tensor, temperature: float, top_p: float | None, top_k: int | None) -> Tensor:
    """Apply the fast rule: from the least probable up, drop ids while their sum is at most 1 - top_p.

    (..., V) float32 → same. The most probable id always stays.
    """
    logits = keep_top_k(logits / max(temperature, LOWEST_TEMPERATURE), top_k)
    if top_p is not None:
        rising = logits.sort(dim=-1).values
        kept = rising.softmax(dim=-1).cumsum(dim=-1) > 1 - top_p
        best = torch.arange(kept.shape[-1], device=kept.device) == kept.shape[-1] - 1
        keep = at_the_edge(logits, rising, kept | best, last=True)
        logits = logits.masked_fill(~keep, -torch.inf)
    return logits.softmax(dim=-1)


def probabilities_slow(logits: Tensor, temperature: float, top_p: float | None, top_k: int | None) -> Tensor:
    """Apply the slow rule, which the second stage uses too. (..., V) float32 → same."""
    probs = keep_top_k(logits / temperature, top_k).softmax(dim=-1)
    return probs if top_p is None else keep_top_p(probs, top_p)


def keep_top_p(probs: Tensor, top_p: float) -> Tensor:
    """Keep the most probable ids until their sum exceeds `top_p`, including the one that crosses it, and
    scale their sum to 1. (..., V) float32 → same.
    """
    falling = probs.sort(dim=-1, descending=True).values
    held = falling.cumsum(dim=-1)
    kept = torch.cat((torch.ones_like(held[..., :1], dtype=torch.bool), held[..., :-1] <= top_p), dim=-1)
    keep = at_the_edge(probs, falling, kept, last=False)
    probs = probs.masked_fill(~keep, 0.0)
    return probs / probs.sum(dim=-1, keepdim=True)


def at_the_edge(x: Tensor, ordered: Tensor, kept: Tensor, *, last: bool) -> Tensor:
    """Map `kept`, a selection of the sorted values `ordered`, back to `x` as a stable sort would, on any
    backend. (..., V) each → (..., V) bool.

    last: of equal values at the cut keep the last ones, else the first ones.
    """
    edge = ordered.masked_fill(~kept, torch.inf).amin(dim=-1, keepdim=True)
    above, equal = x > edge, (x == edge).to(x.dtype)
    room = kept.to(x.dtype).sum(dim=-1, keepdim=True) - above.to(x.dtype).sum(dim=-1, keepdim=True)
    rank = equal.cumsum(dim=-1)  # rank among equal values, from 1
    if last:
        rank = equal.sum(dim=-1, keepdim=True) + 1 - rank
    return above | ((equal > 0) & (rank <= room))


def race(probs: Tensor, waiting: Tensor | None) -> Tensor:
    """Draw one id per row with its probability: the first arrival, for exponential waiting times.

    (..., V) each → (...) int64. Without waiting times the most probable one; V if a row has NaN.
    """
    return first_largest(probs if waiting is None else probs / waiting)


def draw_ids(logits: Tensor, waiting: Tensor | None, sampling: FirstStageSampling) -> Tensor:
    """Draw the next id of each text; -1 for one whose logits are not all finite.

    (G, B, V) logits of the rows of guidance, (B, V) waiting times or None for the most probable → (B,).
    """
    guided = guide(list(logits), sampling.cfg_scale, sampling.text_cfg_scale)
    ids = race(probabilities(guided, sampling), waiting)
    return marked(ids[:, None], logits.flatten(0, 1)[:, None])[:, 0]
