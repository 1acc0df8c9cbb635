"""Constants of MARS5's sampling, shared by both sides."""

from __future__ import annotations

import numpy as np

from tts_core.mars5.options import Mars5Options

PENALTIES_ABOVE = 1  # generated ids: up to this many, repeats have no penalty
TYPICAL_OFF = 0.999  # a `typical_p` above it keeps all ids


def end_penalties(options: Mars5Options, expected: int, count: int) -> np.ndarray:
    """Compute the penalty on the end's logit after n generated ids, n = 0 .. count - 1. (count,) float32.

    expected: ending before this length is penalized.
    """
    missing = expected - np.arange(count)
    penalty = options.eos_penalty_factor * np.maximum(missing, 1.0) ** options.eos_penalty_decay
    return np.where(missing >= 0, penalty, 0.0).astype(np.float32)


def sampling_key(options: Mars5Options) -> tuple[float, ...]:
    """Return the values that `log_probabilities` of both sides reads; texts with equal ones draw together."""
    return (
        options.temperature,
        options.top_k,
        options.top_p,
        options.typical_p,
        options.freq_penalty,
        options.presence_penalty,
    )
