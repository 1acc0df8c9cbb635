"""Settings of Dia2's sampling, for actions and for codes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tts_core.nn.sampling import Sampler

COLDEST = 1e-6  # the lowest temperature that is not greedy


@dataclass(frozen=True)
class Dia2Choice:
    """Settings of the choice of an id. Guidance only picks candidates; the conditional logits are sampled.

    cfg_scale: 1 turns guidance off.
    cfg_filter_k: candidates by guided logits; 0 keeps all.
    temperature: 0 takes the likeliest candidate.
    top_k: then by probability; 0 keeps all.
    """

    cfg_scale: float
    cfg_filter_k: int
    temperature: float
    top_k: int

    @property
    def is_guided(self) -> bool:
        """True if the unconditional logits matter."""
        return self.cfg_scale != 1 and self.cfg_filter_k > 0

    @property
    def is_greedy(self) -> bool:
        """True if no random number is used."""
        return self.temperature <= 0

    @property
    def numbers(self) -> Dia2Numbers:
        """The numbers by which a sampler draws."""
        near = abs(self.cfg_scale) >= 0.5
        return Dia2Numbers(
            cfg_filter_k=self.cfg_filter_k if self.is_guided else 0,
            near=near,
            factor=self.cfg_scale - 1 if near else self.cfg_scale,
            temperature=0 if self.is_greedy else max(self.temperature, COLDEST),
            first_top_k=self.top_k,
        )


@dataclass(frozen=True)
class Dia2Numbers:
    """A choice as its sampler draws. near: guidance starts from the conditional logits."""

    cfg_filter_k: int
    near: bool
    factor: float
    temperature: float
    first_top_k: int


LAST = "cfg_filter_k", "temperature", "first_top_k"
SAMPLER = Sampler(Dia2Numbers, ("nearer_guidance", *LAST))
FIRST_STREAM = Sampler(Dia2Numbers, ("nearer_guidance", "allowed_ids", *LAST))


def allowed_ids(vocabulary: int, forbidden: tuple[int, ...]) -> np.ndarray:
    """Return which ids the first stream may draw: all but padding and begin. → (V,) bool."""
    return ~np.isin(np.arange(vocabulary), forbidden)


@dataclass(frozen=True)
class Dia2Sampling:
    """The choices of a run: of every step's action, and of its codes."""

    action: Dia2Choice
    audio: Dia2Choice

    @cached_property
    def numbers(self) -> tuple[Dia2Numbers, Dia2Numbers]:
        """The numbers by which samplers draw actions and codes."""
        return self.action.numbers, self.audio.numbers

    @property
    def is_guided(self) -> bool:
        """True if unconditional rows are needed."""
        return self.action.is_guided or self.audio.is_guided

    @property
    def is_greedy(self) -> bool:
        """True if no random number is used."""
        return self.action.is_greedy and self.audio.is_greedy
