"""Near-ties of Dia's draws: decisions that rounding may change.

A row's logits are known to within e, the derived bound (tests.tolerance) of a float32 network against
float64. A float32 implementation may then draw another id only where one of the rule's decisions is closer
than e can move it:

    draw    two ids' scores, logits / temperature + Gumbel noise       2 e / temperature
    top-k   the guided logits at the edge                              2 e (1 + 2 cfg_scale)
    top-p   the probability before the edge                            2 e / temperature
    EOS     channel 0's EOS and its best other id                      2 e
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tests.tts_core.dia import sampling_rules as rules
from tts_core.dia.options import DiaSampling


class Tie(NamedTuple):
    """A decision, its distance from the other outcome, and the reach of rounding."""

    decision: str
    distance: float
    margin: float

    @property
    def explained(self) -> bool:
        return self.distance <= self.margin


def nearest(
    cond: np.ndarray,
    uncond: np.ndarray,
    uniform: np.ndarray,
    channel: int,
    ids: tuple[int, int],
    sampling: DiaSampling,
    eos: int,
    e: float,
) -> Tie:
    """The closest decision of one channel for which two implementations drew `ids`.

    cond, uncond: (C, V) float64 logits.  uniform: (C, V).  e: bound of the logits' rounding.
    """
    steep = 2 * e / sampling.temperature
    allowed = rules.forbid_special(cond, eos)
    guided = rules.guide(cond, uncond, sampling.cfg_scale)[channel]
    own = allowed[channel] / sampling.temperature
    scores = own - np.log(-np.log(uniform[channel].astype(np.float64)))
    ties = [Tie("draw", abs(float(scores[ids[0]] - scores[ids[1]])), steep)]
    if 0 < sampling.top_k < len(guided):
        falling = np.sort(guided)[::-1]
        ties.append(
            Tie(
                "top-k",
                float(falling[sampling.top_k - 1] - falling[sampling.top_k]),
                2 * e * (1 + 2 * sampling.cfg_scale),
            )
        )
    if channel == 0:
        others = np.delete(allowed[0], eos)
        ties.append(Tie("EOS", abs(float(allowed[0, eos] - others.max())), 2 * e))
    if sampling.top_p < 1:
        kept = rules.keep_top_k(guided, own, sampling.top_k)
        kept = rules.eos_only_as_argmax(kept[None], eos)[0]
        falling = np.sort(rules.softmax(kept))[::-1]
        before = np.cumsum(falling) - falling
        ties.append(Tie("top-p", float(np.abs(before - sampling.top_p).min()), steep))
    return min(ties, key=lambda tie: tie.distance / tie.margin)
