"""Settings of Dia's sampling.

Plain NumPy versions of the rules are in tests/tts_core/dia/sampling_rules.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tts_core.errors import UsageError

V01_EOS_SCALE = 0.8  # v0.1 multiplies channel 0's guided EOS logit by this, positive or negative


@dataclass(frozen=True)
class Sampling:
    """Settings for sampling one token.

    `temperature` 0 is greedy; `cfg_scale` 0 turns guidance off; `top_k` 0 keeps every id.
    """

    cfg_scale: float
    temperature: float
    top_p: float
    top_k: int

    def __post_init__(self) -> None:
        if not (math.isfinite(self.cfg_scale) and self.cfg_scale >= 0):
            raise UsageError(f"cfg_scale: {self.cfg_scale} is not a number >= 0")
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise UsageError(f"temperature: {self.temperature} is not a number >= 0 (0 is greedy)")
        if not 0 < self.top_p <= 1:
            raise UsageError(f"top_p: {self.top_p} is outside (0, 1]")
        if self.top_k != int(self.top_k) or self.top_k < 0:
            raise UsageError(f"top_k: {self.top_k} is not a whole number >= 0 (0 keeps every id)")


DEFAULTS_0626 = Sampling(cfg_scale=3.0, temperature=1.2, top_p=0.95, top_k=45)
DEFAULTS_V01 = Sampling(cfg_scale=3.0, temperature=1.3, top_p=0.95, top_k=45)
