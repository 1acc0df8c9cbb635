"""Answers as a listener got them, and the figures of a load of them.

Percentiles, underruns, throughput, errors, and whether it was too much.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

PERCENTILES = (50, 95, 99)
MOST_ERRORS = 0.05  # of the requests
BACKLOG = 4.0, 1.5  # more requests in flight at the end than before, and this many times as many


@dataclass(frozen=True)
class Playback:
    """A player's interruptions.

    underruns: how often its sound ran out.
    silence: seconds of all.
    audible: moment at which its sound could first be heard; None if that did not come.
    """

    underruns: int
    silence: float
    audible: float | None = None


def play(parts: Sequence[tuple[float, float]], audible: float = 0.0) -> Playback:
    """Play parts as they arrive, from the first with sound on; a part that is late is played at once.

    parts: moment of arrival and seconds of sound of each, in order.
    audible: seconds of sound before the first that can be heard.
    """
    underruns, silence, end, played, first = 0, 0.0, None, 0.0, None
    for moment, seconds in parts:
        if not seconds:
            continue
        if end is None:
            end = moment
        if moment > end:
            underruns, silence, end = underruns + 1, silence + moment - end, moment
        if first is None and audible < played + seconds:
            first = end + audible - played
        end, played = end + seconds, played + seconds
    return Playback(underruns, silence, first)


@dataclass(frozen=True)
class Answer:
    """A request and its answer. Moments are of one clock, in seconds.

    due: moment of arrival, from which latency counts.
    sent: when the client began.
    ended: last byte, or failure.
    parts: moment and seconds of sound of each piece with sound.
    audible: seconds of sound before the first sample over -60 dB; a whole answer has one.
    error: kind of failure, a status or a word; None for a whole answer.
    """

    due: float
    sent: float
    ended: float
    parts: tuple[tuple[float, float], ...] = ()
    error: str | None = None
    audible: float = 0.0

    @property
    def first(self) -> float:
        """Seconds to the first sound that can be heard."""
        return (play(self.parts, self.audible).audible or self.ended) - self.due

    @property
    def whole(self) -> float:
        """Seconds to the last byte."""
        return self.ended - self.due

    @property
    def sound(self) -> float:
        """Seconds of sound."""
        return sum(seconds for _, seconds in self.parts)


@dataclass(frozen=True)
class Load:
    """Answers to the requests of one rate.

    rate: a second; None, one after the other.
    start: moment.
    seconds: of arrivals.
    """

    rate: float | None
    start: float
    seconds: float
    answers: Sequence[Answer]

    @property
    def whole(self) -> list[Answer]:
        """Answers without error."""
        return [answer for answer in self.answers if answer.error is None]


def in_flight(answers: Sequence[Answer], start: float, end: float) -> float:
    """Mean number of requests between arrival and end, from one moment to another."""
    inside = (min(answer.ended, end) - max(answer.due, start) for answer in answers)
    return sum(seconds for seconds in inside if seconds > 0) / (end - start)


def peak(answers: Sequence[Answer]) -> int:
    """Most requests in flight at once; one that ends as another arrives is gone."""
    changes = sorted([(answer.due, 1) for answer in answers] + [(answer.ended, -1) for answer in answers])
    most = now = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return most


def overload(load: Load) -> str | None:
    """Say why a load was too much for the server; None if the server held it.

    Too much is: more than MOST_ERRORS of the requests fail; or requests pile up, which means that in the last
    quarter of the arrivals at least 4 more were in flight than in the second quarter, and at least 1.5 times
    as many.
    """
    failed = sum(answer.error is not None for answer in load.answers)
    if failed > MOST_ERRORS * len(load.answers):
        return f"{failed} of {len(load.answers)} requests failed"
    if load.rate is None:
        return None
    quarter = load.seconds / 4
    before, after = (
        in_flight(load.answers, load.start + n * quarter, load.start + (n + 1) * quarter) for n in (1, 3)
    )
    if after - before >= BACKLOG[0] and after >= BACKLOG[1] * before:
        return f"requests pile up: {before:.1f} in flight in the second quarter, {after:.1f} in the last"
    return None


def figures(load: Load) -> dict[str, Any]:
    """Compute all figures as JSON values; seconds. Latencies are those of whole answers, None without one."""
    whole = load.whole
    played = [play(answer.parts) for answer in whole]
    sound = sum(answer.sound for answer in whole)
    end = max((answer.ended for answer in load.answers), default=load.start)
    return {
        "rate": load.rate,
        "requests": len(load.answers),
        "done": len(whole),
        "errors": dict(
            sorted(Counter(answer.error for answer in load.answers if answer.error is not None).items())
        ),
        "first_audio": _percentiles([answer.first for answer in whole]),
        "whole": _percentiles([answer.whole for answer in whole]),
        "real_time_factor": _percentiles([answer.whole / answer.sound for answer in whole]),
        "underruns": sum(play.underruns for play in played),
        "interrupted": sum(play.underruns > 0 for play in played),
        "silence": sum(play.silence for play in played),
        "sound": sound,
        "sound_per_second": sound / (end - load.start) if end > load.start else None,
        "peak_in_flight": peak(load.answers),
        "latest_send": max((answer.sent - answer.due for answer in load.answers), default=0.0),
        "overload": overload(load),
    }


def _percentiles(values: Sequence[float]) -> dict[str, float] | None:
    if not values:
        return None
    found = np.percentile(values, PERCENTILES).tolist()
    return {f"p{share}": value for share, value in zip(PERCENTILES, found, strict=True)}
