"""Sampling of Dia's next row.

The rules on tensors; tests/tts_core/dia/sampling_rules.py defines them in plain NumPy.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ref.limits.remedies import first_largest
from tts_core.dia.sampling import V01_EOS_SCALE, DiaSampling


def guide(cond: Tensor, uncond: Tensor, cfg_scale: float) -> Tensor:
    """Classifier-free guidance centered on the conditional logits."""
    return cond + cfg_scale * (cond - uncond)


def keep_top_k(ranking: Tensor, logits: Tensor, top_k: int) -> Tensor:
    """Keep `logits` where `ranking` is among its row's `top_k` largest, else -inf; ties at the cut stay."""
    if not 0 < top_k < ranking.shape[-1]:
        return logits
    edge = ranking.topk(top_k, dim=-1).values[..., -1:]
    return logits.masked_fill(ranking < edge, -torch.inf)


def keep_top_p(logits: Tensor, top_p: float) -> Tensor:
    """Drop ids whose more probable predecessors sum to more than `top_p`; ties at the cut stay."""
    if top_p >= 1:
        return logits
    probs = logits.softmax(dim=-1)
    falling = probs.sort(dim=-1, descending=True).values
    before = falling.cumsum(dim=-1) - falling
    edge = falling.masked_fill(before > top_p, torch.inf).amin(dim=-1, keepdim=True)
    return logits.masked_fill(probs < edge, -torch.inf)


def forbid_special(logits: Tensor, eos: int) -> Tensor:
    """Set logits to -inf above EOS everywhere, and at EOS in every channel but the first. (..., C, V)."""
    ids = torch.arange(logits.shape[-1], device=logits.device)
    channel = torch.arange(logits.shape[-2], device=logits.device)[:, None]
    return logits.masked_fill((ids > eos) | ((ids == eos) & (channel > 0)), -torch.inf)


def candidates_0626(cond: Tensor, uncond: Tensor, sampling: DiaSampling, eos: int) -> Tensor:
    """Compute the logits that the 0626 rule samples from, or whose argmax it takes at temperature 0.

    (..., C, V) float32.
    """
    # upstream samples from the conditional logits; guidance only picks the candidates
    guided = guide(cond, uncond, sampling.cfg_scale)
    allowed = forbid_special(cond, eos)
    logits = keep_top_k(guided, allowed, sampling.top_k)
    # if guidance picks only forbidden ids, upstream fails; here every allowed id is then a candidate
    logits = torch.where(logits.isneginf().all(dim=-1, keepdim=True), allowed, logits)
    if sampling.temperature == 0:
        return logits
    logits = logits / sampling.temperature
    ids = torch.arange(logits.shape[-1], device=logits.device)
    ends = first_largest(logits)[..., None] == eos
    logits = logits.masked_fill(torch.where(ends, ids < eos, ids == eos), -torch.inf)
    return keep_top_p(keep_top_k(logits, logits, sampling.top_k), sampling.top_p)


def candidates_v01(cond: Tensor, uncond: Tensor, sampling: DiaSampling, eos: int) -> Tensor:
    """Compute the logits that the v0.1 rule samples from: guided, channel 0's EOS scaled. (..., C, V)."""
    logits = forbid_special(guide(cond, uncond, sampling.cfg_scale), eos)
    logits[..., 0, eos] *= V01_EOS_SCALE
    if sampling.temperature == 0:
        return logits
    logits = logits / sampling.temperature
    ids = torch.arange(logits.shape[-1], device=logits.device)
    not_best = first_largest(logits)[..., None] != eos
    logits = logits.masked_fill(not_best & (ids == eos), -torch.inf)
    return keep_top_p(keep_top_k(logits, logits, sampling.top_k), sampling.top_p)


def draw(logits: Tensor, uniform: Tensor) -> Tensor:
    """Draw one id per row with probability softmax(logits), by the Gumbel maximum.

    (..., V) each → (...) int64.
    """
    return first_largest(logits - torch.log(-torch.log(uniform)))
