"""Sampling of Dia2's ids: candidates by guidance, then by probability.

Source: nari-labs/dia2@8687268, Apache-2.0.
Differs from upstream: if guidance picks only ids that are no codes, every code is then a candidate; ties at
the last place of top_k go to the lowest id.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ref.limits.remedies import first_largest
from tts_core.dia2.sampling import COLDEST, Dia2Choice


def guide(cond: Tensor, uncond: Tensor, cfg_scale: float) -> Tensor:
    """Classifier-free guidance centered on the unconditional logits, from the nearer end."""
    if abs(cfg_scale) >= 0.5:
        return cond - (cond - uncond) * (1 - cfg_scale)
    return uncond + cfg_scale * (cond - uncond)


def picked(cond: Tensor, uncond: Tensor, choice: Dia2Choice) -> Tensor:
    """Mark the candidates of guidance, with ties at the last place. (..., V) → (..., V) booleans."""
    if not choice.is_guided:
        return torch.ones_like(cond, dtype=torch.bool)
    guided = guide(cond, uncond, choice.cfg_scale)
    return guided >= kth_largest(guided, min(choice.cfg_filter_k, guided.shape[-1]))


def kth_largest(x: Tensor, k: int) -> Tensor:
    """Return the k-th largest number of each row. (..., V) → (..., 1)."""
    return x.topk(k, dim=-1).values.amin(dim=-1, keepdim=True)


def keep_top_k(logits: Tensor, top_k: int) -> Tensor:
    """Keep the `top_k` largest of a row, else -inf; of equal ones the first. (..., V)."""
    if not 0 < top_k < logits.shape[-1]:
        return logits
    edge = kth_largest(logits, top_k)
    above, ties = logits > edge, logits == edge
    room = top_k - above.sum(dim=-1, keepdim=True)
    return logits.masked_fill(~(above | (ties & (ties.int().cumsum(dim=-1) <= room))), -torch.inf)


def candidates(cond: Tensor, uncond: Tensor, choice: Dia2Choice, is_code: Tensor | None = None) -> Tensor:
    """Compute the logits that are sampled from, or whose argmax is taken at temperature 0.

    (..., V) at least float32.  is_code: (V,), the ids that may be chosen; None allows all.
    """
    logits = cond.masked_fill(~picked(cond, uncond, choice), -torch.inf)
    if is_code is not None:
        allowed = cond.masked_fill(~is_code, -torch.inf)
        logits = logits.masked_fill(~is_code, -torch.inf)
        logits = torch.where(logits.isneginf().all(dim=-1, keepdim=True), allowed, logits)
    if choice.is_greedy:
        return logits
    return keep_top_k(logits / max(choice.temperature, COLDEST), choice.top_k)


def choose(
    cond: Tensor, uncond: Tensor, choice: Dia2Choice, uniform: Tensor | None, is_code: Tensor | None = None
) -> Tensor:
    """Choose one id per row, by the Gumbel maximum unless greedy. (..., V) → (...) int64.

    uniform: (..., V); may be None if greedy.
    """
    logits = candidates(cond, uncond, choice, is_code)
    if choice.is_greedy or uniform is None:
        return first_largest(logits)
    return first_largest(logits - torch.log(-torch.log(uniform)))
