"""Sampling of Qwen3-TTS's codes: penalty and bans for the first one, then candidates and a draw.

Source: QwenLM/Qwen3-TTS@022e286, with the filters of transformers 4.57.3, both Apache-2.0.
No known difference: ties at the last place of top_k all stay.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ref.limits.remedies import first_largest
from tts_core.qwen3.config import SUPPRESSED
from tts_core.qwen3.sampling import LEAST_FRAMES, Qwen3Choice


def penalize(logits: Tensor, seen: Tensor, penalty: float) -> Tensor:
    """Make ids that were drawn before less likely. logits, seen: (..., V), the latter booleans."""
    return torch.where(seen, torch.where(logits < 0, logits * penalty, logits / penalty), logits)


def allow(logits: Tensor, eos: int, step: int | Tensor) -> Tensor:
    """Keep codes and, from the third step on, the end of speech. (..., V).

    step: a number, or (..., 1).
    """
    ids = torch.arange(logits.shape[-1], device=logits.device)
    allowed = torch.where(ids == eos, step >= LEAST_FRAMES, ids < logits.shape[-1] - SUPPRESSED)
    return logits.masked_fill(~allowed, -torch.inf)


def candidates(logits: Tensor, choice: Qwen3Choice) -> Tensor:
    """Compute the logits that are sampled from, or whose argmax is taken. (..., V) at least float32."""
    if choice.is_greedy:
        return logits
    logits = logits / choice.temperature
    if 0 < choice.top_k < logits.shape[-1]:
        edge = logits.topk(choice.top_k, dim=-1).values[..., -1:]
        logits = logits.masked_fill(logits < edge, -torch.inf)
    if choice.top_p < 1:
        rising, order = logits.sort(dim=-1, stable=True)  # of equals the last stay on every machine
        dropped = rising.softmax(dim=-1).cumsum(dim=-1) <= 1 - choice.top_p
        dropped[..., -1] = False
        logits = logits.masked_fill(torch.zeros_like(dropped).scatter(-1, order, dropped), -torch.inf)
    return logits


def draw(logits: Tensor, choice: Qwen3Choice, uniform: Tensor | None) -> Tensor:
    """Choose one id per row from `candidates`, by the Gumbel maximum unless greedy. (..., V) → (...) int64.

    uniform: (..., V); may be None if greedy.
    """
    if choice.is_greedy or uniform is None:
        return first_largest(logits)
    return first_largest(logits - torch.log(-torch.log(uniform)))
