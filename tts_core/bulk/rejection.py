"""Conditions under which a spoken row is rejected, as `wer>0.3`, and the seeds of its next attempts."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tts_core.errors import UsageError, did_you_mean


@dataclass(frozen=True)
class Condition:
    """A judged figure beyond a limit. sign: 1 if larger figures are worse, -1 if smaller ones are."""

    figure: str
    sign: int
    limit: float

    @classmethod
    def parse(cls, text: str, known: Collection[str]) -> Condition:
        """Read "wer>0.3" or "mos<3". known: figures that can be judged.

        Raises UsageError for another form, and for an unknown figure with the nearest known one.
        """
        match = re.fullmatch(r"\s*(\w+)\s*([<>])\s*(-?\d+(?:\.\d*)?|-?\.\d+)\s*", text, re.ASCII)
        if match is None:
            raise UsageError(f"--reject: {text!r} is no condition; give a figure and a limit: wer>0.3")
        figure = match[1]
        if figure not in known:
            hint = did_you_mean(figure, known) or f"choose one of {', '.join(known)}"
            raise UsageError(f"--reject: no judge gives the figure {figure!r}; {hint}")
        return cls(figure, 1 if match[2] == ">" else -1, float(match[3]))

    def __str__(self) -> str:
        return f"{self.figure}{'>' if self.sign > 0 else '<'}{self.limit:g}"

    def holds(self, figures: Mapping[str, float]) -> bool:
        """True if the figure is there and beyond the limit. A row without a reference has no likeness."""
        return self.figure in figures and self.sign * (figures[self.figure] - self.limit) > 0


@dataclass(frozen=True)
class Rejection:
    """When to reject a row.

    conditions: each of them rejects.
    retries: attempts after the first.
    judges: of each figure, by name.
    """

    conditions: tuple[Condition, ...]
    retries: int
    judges: Mapping[str, str]

    def rank(self, figures: Mapping[str, float] | None) -> tuple[float, ...]:
        """Rank an attempt: a better one has a smaller rank, and the rank of an accepted one begins with 0.

        Fewest conditions first, then the first condition's figure, then the next one's. None: not judged.
        """
        if figures is None:
            return (math.inf,)
        held = sum(condition.holds(figures) for condition in self.conditions)
        return (held, *(condition.sign * figures.get(condition.figure, 0.0) for condition in self.conditions))


def attempt_seed(key: str, attempt: int) -> int:
    """Seed of a row's attempt, from 1 for the first repetition."""
    return int(hashlib.sha256(f"{key} {attempt}".encode()).hexdigest()[:15], 16)
