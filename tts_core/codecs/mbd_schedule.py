"""Multi-band diffusion's noise schedule and the numbers of each transition, in float64.

Source: facebookresearch/audiocraft (MIT) modules/diffusion_schedule.py, written from its description. Differs
from upstream: float64 in place of float32 (1 - alpha loses four digits there in the last transition), and a
list of steps is checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tts_core.codecs.mbd import MbdScheduleConfig
from tts_core.errors import UsageError

STRIDE = 50  # of the default list


@dataclass(frozen=True)
class Transition:
    """x ← x_scale (x - estimate_scale U(x, step)) + fresh_scale n: from `step` to the next on the list."""

    step: int
    x_scale: float
    estimate_scale: float
    fresh_scale: float  # 0 in the last transition: no fresh noise is drawn


def betas(config: MbdScheduleConfig) -> np.ndarray:
    """Compute the noise added by each step, from the first. (num_steps,) float64."""
    root = 1 / config.beta_exp
    return np.linspace(config.beta_t0**root, config.beta_t1**root, config.num_steps) ** config.beta_exp


def alpha_bars(config: MbdScheduleConfig) -> np.ndarray:
    """Compute the share of the signal's variance left after each step. (num_steps,) float64."""
    return np.cumprod(1 - betas(config))


def default_steps(config: MbdScheduleConfig) -> list[int]:
    """List every fiftieth step from the last, and the first: 999, 949, … 49, 0 of a thousand steps."""
    steps = list(range(config.num_steps))[::-STRIDE]
    return steps if steps[-1] == 0 else [*steps, 0]


def check_steps(config: MbdScheduleConfig, steps: Sequence[int]) -> list[int]:
    """Return the list if it has two or more valid steps in descending order. Raises UsageError."""
    descending = all(a > b for a, b in pairwise(steps))
    if len(steps) < 2 or not descending or steps[0] >= config.num_steps or steps[-1] < 0:
        raise UsageError(
            f"steps: {', '.join(map(str, steps))}: give two or more in descending order, "
            f"from {config.num_steps - 1} to 0"
        )
    return list(steps)


def transitions(config: MbdScheduleConfig, steps: Sequence[int]) -> list[Transition]:
    """Compute a transition for each pair of adjacent steps; the last step is only a target."""
    bars, found = alpha_bars(config), []
    for step, target in pairwise(steps):
        alpha = bars[step] / bars[target]
        variance = (1 - bars[target]) / (1 - bars[step]) * (1 - alpha) if target != steps[-1] else 0.0
        found.append(
            Transition(
                step,
                float(1 / np.sqrt(alpha)),
                float((1 - alpha) / np.sqrt(1 - bars[step]) * config.noise_scale),
                float(np.sqrt(variance) * config.noise_scale),
            )
        )
    return found
