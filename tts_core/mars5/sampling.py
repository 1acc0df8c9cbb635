"""Sampling of MARS5's ids: its rules, their settings and constants.

Source: a description of Camb-ai/MARS5-TTS@84697c8 (AGPL-3.0); none of its code was used.
Differs from upstream: a nucleus cut keeps all of several equal ids, independent of the order of a sort; ids
are drawn with the inverse cumulative distribution, from one number each.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tts_core.mars5.options import Mars5Options
from tts_core.nn.sampling import Sampler

PENALTIES_ABOVE = 1  # generated ids: up to this many, repeats have no penalty
TYPICAL_OFF = 0.999  # a `typical_p` above it keeps all ids


@dataclass(frozen=True)
class Mars5Numbers:
    """Options by which the sampler draws."""

    freq_penalty: float
    presence_penalty: float
    temperature: float
    top_k: int
    top_p: float
    typical_p: float


SAMPLER = Sampler(
    Mars5Numbers,
    (
        "freq_penalty",
        "presence_penalty",
        "allowed_ids",
        "end_penalty",
        "temperature",
        "top_k",
        "top_p",
        "typical_p",
    ),
    pick="inverse",
)


def numbers(options: Mars5Options) -> Mars5Numbers:
    """Return the numbers by which the sampler draws; at temperature 0 it draws one of the best ids."""
    penalties = options.freq_penalty, options.presence_penalty
    if options.temperature == 0:
        return Mars5Numbers(*penalties, temperature=1, top_k=1, top_p=1, typical_p=1)
    typical_p = options.typical_p if options.typical_p <= TYPICAL_OFF else 1
    return Mars5Numbers(*penalties, options.temperature, options.top_k, options.top_p, typical_p)


def allowed_ids(vocabulary: int, lowest: int) -> np.ndarray:
    """Return which ids may be drawn: from `lowest` on. → (V,) bool."""
    return np.arange(vocabulary) >= lowest


def end_penalties(options: Mars5Options, expected: int, count: int) -> np.ndarray:
    """Compute the penalty on the end's logit after n generated ids, n = 0 .. count - 1. (count,) float32.

    expected: ending before this length is penalized.
    """
    missing = expected - np.arange(count)
    penalty = options.eos_penalty_factor * np.maximum(missing, 1.0) ** options.eos_penalty_decay
    return np.where(missing >= 0, penalty, 0.0).astype(np.float32)
