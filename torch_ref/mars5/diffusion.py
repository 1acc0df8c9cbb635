"""Multinomial diffusion over codes, in logarithms.

Hoogeboom et al., "Argmax flows and multinomial diffusion", arXiv:2102.05379. Upstream:
Camb-ai/MARS5-TTS@84697c8 (AGPL-3.0); written from a description, no code of it was used.
Differs from upstream: a row of a code's own probabilities has two values, so that none is ever built; float32
throughout; unknown cells alone get logits; how cells are drawn is told in tts_core/mars5/diffusion.py.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from torch_ref.layers.selection import first_largest
from torch_ref.mars5.class_numbers import class_gumbel


class Timestep(NamedTuple):
    """A row of tts_core.mars5.diffusion.constants, where they are told; () each."""

    keep: Tensor
    rest: Tensor
    hot: Tensor
    cold: Tensor
    edge: Tensor
    stay: Tensor
    pinned: Tensor


def at_timestep(table: Tensor, t: Tensor) -> Timestep:
    """table: (T, 7).  t: (1,) int. Reads nothing back."""
    return Timestep(*table[t][0].unbind())


def guided(logits: Tensor, guidance_w: float, x_0_temp: float) -> Tensor:
    """Logits of clean codes, away from the unconditional ones, tempered. Overwrites its input.

    logits: (1 or 2, S, Q, K), the conditional row first → (S, Q, K).
    """
    mixture = logits[0]
    if len(logits) == 2:
        mixture.mul_(guidance_w).add_(logits[1], alpha=1 - guidance_w)
    return mixture.div_(x_0_temp)


def mixed(log_p: Tensor, keep: Tensor, rest: Tensor) -> Tensor:
    """log(exp(keep) p + exp(rest)): what noise leaves of p. (..., K) → same."""
    return torch.logaddexp(log_p + keep, rest)


def posterior(log_x0: Tensor, codes: Tensor, at: Timestep) -> Tensor:
    """Log-probabilities one step below, given what a cell holds now. (..., K), (...) int64 → (..., K)."""
    log_p = mixed(log_x0, at.keep, at.rest)
    own = codes[..., None]
    hot = log_p.gather(-1, own) + at.hot
    return log_p.add_(at.cold).scatter_(-1, own, hot).log_softmax(dim=-1)


def draw_per_class(log_p: Tensor, gumbel: Tensor) -> Tensor:
    """The largest sum of log-probability and Gumbel number. (..., K) each → (...) int64."""
    return first_largest(log_p + gumbel).clamp(max=log_p.shape[-1] - 1)  # a row with NaN gives K


def draw_per_cell(log_p: Tensor, uniform: Tensor) -> Tensor:
    """The same from two numbers a cell. (..., K), (2, ...) → (...) int64."""
    return draw_per_class(log_p, class_gumbel(uniform, log_p.shape[-1]))


def noised_per_cell(clean: Tensor, uniform: Tensor, at: Timestep, n_classes: int) -> Tensor:
    """Known codes at a timestep's level: as they are, or any other class. (S, Q), (2, S, Q) → (S, Q)."""
    other = (uniform[1] * (n_classes - 1)).long()
    other = other + (other >= clean)
    return torch.where(uniform[0] < at.stay, clean, other)


def noised_per_class(clean: Tensor, gumbel: Tensor, at: Timestep) -> Tensor:
    """The same from a Gumbel number for every class. (S, Q), (S, Q, K) → (S, Q)."""
    own = clean[..., None]
    return first_largest(gumbel.scatter_add(-1, own, at.edge.expand(own.shape)))
