"""Multinomial diffusion over codes, in logarithms.

Hoogeboom et al., "Argmax flows and multinomial diffusion", arXiv:2102.05379. Upstream:
Camb-ai/MARS5-TTS@84697c8 (AGPL-3.0); written from a description, none of its code was used.
Differs from upstream: one-hot rows have two values and are never built; float32 throughout; only unknown
cells get logits; tts_core/mars5/diffusion.py describes how cells are drawn.
"""

from __future__ import annotations

from typing import NamedTuple

import mlx.core as mx

from mlx_port.mars5.class_numbers import class_gumbel


class Timestep(NamedTuple):
    """A row of tts_core.mars5.diffusion.constants, which defines the fields; () each."""

    same: mx.array
    rest: mx.array
    hot: mx.array
    cold: mx.array
    edge: mx.array
    stay: mx.array
    pinned: mx.array


def at_timestep(table: mx.array, t: mx.array) -> Timestep:
    """Select a timestep's row. table: (T, 7).  t: (1,) int. Does not read the device."""
    row = table[t][0]
    return Timestep(*(row[i] for i in range(len(Timestep._fields))))


def guided(logits: mx.array, guidance_w: float, x_0_temp: float) -> mx.array:
    """Apply guidance and temperature to the logits of clean codes.

    logits: (1 or 2, S, Q, K), the conditional row first → (S, Q, K).
    """
    mixture = logits[0]
    if len(logits) == 2:
        mixture = guidance_w * mixture + (1 - guidance_w) * logits[1]
    return mixture / x_0_temp


def mixed(log_p: mx.array, same: mx.array, rest: mx.array) -> mx.array:
    """Mix noise into p: log(exp(keep) p + exp(rest)). (..., K) → same."""
    return mx.logaddexp(log_p + same, rest)


def posterior(log_x0: mx.array, codes: mx.array, at: Timestep) -> mx.array:
    """Compute log-probabilities one step below, given the current code. (..., K), (...) int32 → (..., K)."""
    log_p = mixed(log_x0, at.same, at.rest)
    own = mx.arange(log_p.shape[-1]) == codes[..., None]
    log_p = log_p + mx.where(own, at.hot, at.cold)
    return log_p - mx.logsumexp(log_p, axis=-1, keepdims=True)


def draw_per_class(log_p: mx.array, gumbel: mx.array) -> mx.array:
    """Take the largest sum of log-probability and Gumbel number. (..., K) each → (...) int32."""
    return mx.argmax(log_p + gumbel, axis=-1).astype(mx.int32)


def draw_per_cell(log_p: mx.array, uniform: mx.array) -> mx.array:
    """Draw from two numbers per cell. (..., K), (2, ...) → (...) int32."""
    return draw_per_class(log_p, class_gumbel(uniform, log_p.shape[-1]))


def noised_per_cell(clean: mx.array, uniform: mx.array, at: Timestep, n_classes: int) -> mx.array:
    """Noise known codes to a timestep's level, from two numbers per cell. (S, Q), (2, S, Q) → (S, Q)."""
    other = (uniform[1] * (n_classes - 1)).astype(mx.int32)
    other = other + (other >= clean)
    return mx.where(uniform[0] < at.stay, clean, other)


def noised_per_class(clean: mx.array, gumbel: mx.array, at: Timestep) -> mx.array:
    """Noise known codes, from a Gumbel number for every class. (S, Q), (S, Q, K) → (S, Q)."""
    own = mx.arange(gumbel.shape[-1]) == clean[..., None]
    return mx.argmax(gumbel + mx.where(own, at.edge, 0), axis=-1).astype(mx.int32)
