"""Settings of MetaVoice's sampling, and its random numbers.

Plain NumPy versions of the rules are in tests/tts_core/metavoice/sampling_rules.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Protocol

from tts_core.errors import UsageError
from tts_core.nn.noise import Noise, NormalNoise
from tts_core.nn.sampling import OFF, Sampler

LOWEST_TEMPERATURE = 1e-5  # of the fast rule
SECOND_STAGE_STEP = 1 << 32  # step in a text's noise source that its second stage draws from


class SpeechNoise(Noise, NormalNoise, Protocol):
    """Random numbers for one piece of a text: uniform for both stages, normal for multi-band diffusion."""


@dataclass(frozen=True)
class FirstStageSampling:
    """Settings for sampling one token.

    cfg_scale, text_cfg_scale: guidance on speaker and text; 1 turns it off, and saves a row.
    temperature: the fast rule raises it to at least 1e-5, the slow rule rejects less.
    top_p, top_k: None keeps every id; the slow rule allows only one of them.
    rule: which of upstream's two programs to follow.
    """

    cfg_scale: float = 3.0
    text_cfg_scale: float = 1.0
    temperature: float = 1.0
    top_p: float | None = 0.95
    top_k: int | None = None
    rule: Literal["fast", "slow"] = "fast"

    def __post_init__(self) -> None:
        slow = self.rule == "slow"
        for name, least in (("cfg_scale", 1 if slow else 0), ("text_cfg_scale", 1)):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= least):
                raise UsageError(f"{name}: {value} is not a number >= {least}")
        if self.rule not in ("fast", "slow"):
            raise UsageError(f"rule: {self.rule!r} is neither fast nor slow")
        if not slow and self.text_cfg_scale != 1:
            raise UsageError(f"text_cfg_scale: {self.text_cfg_scale} needs the slow rule; leave it at 1")
        coldest = LOWEST_TEMPERATURE if slow else 0
        if not (math.isfinite(self.temperature) and self.temperature >= coldest):
            raise UsageError(f"temperature: {self.temperature} is not a number >= {coldest}")
        if self.top_p is not None and not 0 <= self.top_p <= 1:
            raise UsageError(f"top_p: {self.top_p} is outside [0, 1]")
        if self.top_k is not None and (self.top_k != int(self.top_k) or self.top_k < 1):
            raise UsageError(f"top_k: {self.top_k} is not a whole number >= 1")
        if slow and self.top_p is not None and self.top_k is not None:
            raise UsageError("top_p and top_k: the slow rule takes only one of them; set the other to None")

    @property
    def rows(self) -> int:
        """Rows that the network computes for one text: conditional, without speaker, without text."""
        if self.text_cfg_scale != 1:
            return 3
        return 1 if self.cfg_scale == 1 else 2

    @property
    def greedy(self) -> bool:
        """True if a draw does not depend on its noise, apart from equal logits."""
        return self.top_k == 1 or self.temperature == 0

    @cached_property
    def numbers(self) -> MetaVoiceNumbers:
        """The numbers by which the sampler draws."""
        fast = self.rule == "fast"
        return MetaVoiceNumbers(
            full=self.cfg_scale + self.text_cfg_scale - 1,
            speaker=1 - self.cfg_scale,
            textual=1 - self.text_cfg_scale,
            temperature=0 if self.greedy else max(self.temperature, LOWEST_TEMPERATURE),
            top_k=self.top_k or 0,
            rising_top_p=OFF["rising_top_p"] if self.top_p is None or not fast else 1 - self.top_p,
            first_top_p=OFF["first_top_p"] if self.top_p is None or fast else self.top_p,
        )


@dataclass(frozen=True)
class MetaVoiceNumbers:
    """A text's sampling as its sampler draws.

    full, speaker, textual: factors of the rows of guidance.
    rising_top_p, first_top_p: top-p of the fast rule, and of the slow one.
    """

    full: float
    speaker: float
    textual: float
    temperature: float
    top_k: int
    rising_top_p: float
    first_top_p: float


SAMPLER = Sampler(
    MetaVoiceNumbers, ("three_way_guidance", "temperature", "top_k", "rising_top_p", "first_top_p")
)
