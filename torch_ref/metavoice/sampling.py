"""Drawing MetaVoice's next token, and its second stage's codes.

The rules on tensors; their slow definition in NumPy is tests/tts_core/metavoice/sampling_rules.py.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from torch_ref.layers.selection import first_largest
from tts_core.metavoice.sampling import LOWEST_TEMPERATURE, FirstStageSampling


def guide(rows: Sequence[Tensor], cfg_scale: float, text_cfg_scale: float = 1.0) -> Tensor:
    """Classifier-free guidance by speaker and text. One to three rows, (..., V) each."""
    if len(rows) == 1:
        return rows[0]
    guided = (cfg_scale + text_cfg_scale - 1) * rows[0] + (1 - cfg_scale) * rows[1]
    return guided + (1 - text_cfg_scale) * rows[2] if len(rows) == 3 else guided


def keep_top_k(logits: Tensor, top_k: int | None) -> Tensor:
    """The `top_k` largest of each row, -inf elsewhere; ties at the edge stay. (..., V)."""
    if top_k is None or top_k >= logits.shape[-1]:
        return logits
    edge = logits.topk(top_k, dim=-1).values[..., -1:]
    return logits.masked_fill(logits < edge, -torch.inf)


def probabilities(logits: Tensor, sampling: FirstStageSampling) -> Tensor:
    """What a token is drawn from, by the rule that `sampling` names. (..., V) float32 → same."""
    rule = probabilities_fast if sampling.rule == "fast" else probabilities_slow
    return rule(logits, sampling.temperature, sampling.top_p, sampling.top_k)


def probabilities_fast(logits: Tensor, temperature: float, top_p: float | None, top_k: int | None) -> Tensor:
    """The fast rule: from the least probable up, ids go while their sum is at most 1 - top_p.

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
    """The slow rule, and the second stage's. (..., V) float32 → same."""
    probs = keep_top_k(logits / temperature, top_k).softmax(dim=-1)
    return probs if top_p is None else keep_top_p(probs, top_p)


def keep_top_p(probs: Tensor, top_p: float) -> Tensor:
    """From the most probable down, ids stay until their sum is above `top_p`, the one that crosses it
    included; what stays is scaled to 1. (..., V) float32 → same.
    """
    falling = probs.sort(dim=-1, descending=True).values
    held = falling.cumsum(dim=-1)
    kept = torch.cat((torch.ones_like(held[..., :1], dtype=torch.bool), held[..., :-1] <= top_p), dim=-1)
    keep = at_the_edge(probs, falling, kept, last=False)
    probs = probs.masked_fill(~keep, 0.0)
    return probs / probs.sum(dim=-1, keepdim=True)


def at_the_edge(x: Tensor, ordered: Tensor, kept: Tensor, *, last: bool) -> Tensor:
    """Which of `x` stay, when `kept` says which of the same numbers, sorted, do: as a stable sort would have
    it, whatever sort the backend has. (..., V) each → (..., V) bool.

    last: of equal numbers at the edge those at the end stay, else those at the beginning.
    """
    edge = ordered.masked_fill(~kept, torch.inf).amin(dim=-1, keepdim=True)
    above, equal = x > edge, (x == edge).to(x.dtype)
    room = kept.to(x.dtype).sum(dim=-1, keepdim=True) - above.to(x.dtype).sum(dim=-1, keepdim=True)
    rank = equal.cumsum(dim=-1)  # of an equal number, from 1
    if last:
        rank = equal.sum(dim=-1, keepdim=True) + 1 - rank
    return above | ((equal > 0) & (rank <= room))


def race(probs: Tensor, waiting: Tensor | None) -> Tensor:
    """One id per row with its probability: the first to arrive, waiting times being exponential.

    (..., V) each → (...) int64. Without waiting times the most probable one; V where a row holds NaN.
    """
    return first_largest(probs if waiting is None else probs / waiting)
