"""One answer as a listener got it, and what a player of it would play."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Playback:
    """Interruptions of a player. underruns: how often its sound ran out.  silence: seconds of all."""

    underruns: int
    silence: float


def play(parts: Sequence[tuple[float, float]]) -> Playback:
    """Play parts as they arrive, from the first with sound on; a part that is late is played at once.

    parts: moment of arrival and seconds of sound of each, in order.
    """
    underruns, silence, end = 0, 0.0, None
    for moment, seconds in parts:
        if not seconds:
            continue
        if end is None:
            end = moment
        if moment > end:
            underruns, silence, end = underruns + 1, silence + moment - end, moment
        end += seconds
    return Playback(underruns, silence)


@dataclass(frozen=True)
class Answer:
    """A request and its answer. Moments are of one clock, in seconds.

    planned: moment of arrival, from which latency counts.
    sent: when the client began.
    ended: last byte, or failure.
    parts: moment and seconds of sound of each piece with sound.
    error: kind of failure, a status or a word; None for a whole answer.
    """

    planned: float
    sent: float
    ended: float
    parts: tuple[tuple[float, float], ...] = ()
    error: str | None = None

    @property
    def first(self) -> float:
        """Seconds to the first sound."""
        return self.parts[0][0] - self.planned

    @property
    def whole(self) -> float:
        """Seconds to the last byte."""
        return self.ended - self.planned

    @property
    def sound(self) -> float:
        """Seconds of sound."""
        return sum(seconds for _, seconds in self.parts)
