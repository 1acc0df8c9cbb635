"""Settings of Dia2's sampling, for actions and for codes."""

from __future__ import annotations

from dataclasses import dataclass

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


@dataclass(frozen=True)
class Dia2Sampling:
    """The choices of a run: of every step's action, and of its codes."""

    action: Dia2Choice
    audio: Dia2Choice

    @property
    def is_guided(self) -> bool:
        """True if unconditional rows are needed."""
        return self.action.is_guided or self.audio.is_guided

    @property
    def is_greedy(self) -> bool:
        """True if no random number is used."""
        return self.action.is_greedy and self.audio.is_greedy
