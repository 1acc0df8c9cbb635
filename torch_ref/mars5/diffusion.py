"""Multinomial diffusion over codes, in logarithms.

Hoogeboom et al., "Argmax flows and multinomial diffusion", arXiv:2102.05379. Upstream:
Camb-ai/MARS5-TTS@84697c8 (AGPL-3.0); written from a description, none of its code was used.
Differs from upstream: one-hot rows have two values and are never built; float32 throughout; only unknown
cells get logits; tts_core/mars5/diffusion.py describes how cells are drawn.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from torch_ref.limits.remedies import first_largest
from torch_ref.mars5.class_numbers import class_gumbel


class Timestep(NamedTuple):
    """A row of tts_core.mars5.diffusion.constants, which defines the fields; () each."""

    same: Tensor
    rest: Tensor
    hot: Tensor
    cold: Tensor
    edge: Tensor
    stay: Tensor
    pinned: Tensor


def at_timestep(table: Tensor, t: Tensor) -> Timestep:
    """Select a timestep's row. table: (T, 7).  t: (1,) int. Does not read the device."""
    return Timestep(*table[t][0].unbind())


def guided(logits: Tensor, guidance_w: float, x_0_temp: float) -> Tensor:
    """Apply guidance and temperature to the logits of clean codes. Overwrites its input.

    logits: (1 or 2, S, Q, K), the conditional row first → (S, Q, K).
    """
    mixture = logits[0]
    if len(logits) == 2:
        mixture.mul_(guidance_w).add_(logits[1], alpha=1 - guidance_w)
    return mixture.div_(x_0_temp)


def mixed(log_p: Tensor, same: Tensor, rest: Tensor) -> Tensor:
    """Mix noise into p: log(exp(keep) p + exp(rest)). (..., K) → same."""
    return torch.logaddexp(log_p + same, rest)


def posterior(log_x0: Tensor, codes: Tensor, at: Timestep) -> Tensor:
    """Compute log-probabilities one step below, given the current code. (..., K), (...) int64 → (..., K)."""
    log_p = mixed(log_x0, at.same, at.rest)
    own = codes[..., None]
    hot = log_p.gather(-1, own) + at.hot
    return log_p.add_(at.cold).scatter_(-1, own, hot).log_softmax(dim=-1)


def draw_per_class(log_p: Tensor, gumbel: Tensor) -> Tensor:
    """Take the largest sum of log-probability and Gumbel number. (..., K) each → (...) int64."""
    return first_largest(log_p + gumbel).clamp(max=log_p.shape[-1] - 1)  # a row with NaN gives K


def draw_per_cell(log_p: Tensor, uniform: Tensor) -> Tensor:
    """Draw from two numbers per cell. (..., K), (2, ...) → (...) int64."""
    return draw_per_class(log_p, class_gumbel(uniform, log_p.shape[-1]))


def noised_per_cell(clean: Tensor, uniform: Tensor, at: Timestep, n_classes: int) -> Tensor:
    """Noise known codes to a timestep's level, from two numbers per cell. (S, Q), (2, S, Q) → (S, Q)."""
    other = (uniform[1] * (n_classes - 1)).long()
    other = other + (other >= clean)
    return torch.where(uniform[0] < at.stay, clean, other)


def noised_per_class(clean: Tensor, gumbel: Tensor, at: Timestep) -> Tensor:
    """Noise known codes, from a Gumbel number for every class. (S, Q), (S, Q, K) → (S, Q)."""
    own = clean[..., None]
    return first_largest(gumbel.scatter_add(-1, own, at.edge.expand(own.shape)))
