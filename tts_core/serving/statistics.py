"""Figures of a running engine: gauges and counters, and the times of every request that ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tts_core.errors import CancelledError
from tts_core.serving.speech import Speech


class Ended(NamedTuple):
    """A request that ended. Seconds are measured from `submit`.

    outcome: "stop", "length", "cancelled" or the class of the error.
    started: it joined a batch; None if it never did, as first_audio without sound.
    token_count: decoder rows.
    """

    model: str
    outcome: str
    started: float | None
    first_audio: float | None
    seconds: float
    audio_seconds: float
    token_count: int

    @classmethod
    def of(cls, speech: Speech) -> Ended:
        """Summarize a speech that ended."""

        def since(moment: float | None) -> float | None:
            return None if moment is None else moment - speech.submitted

        outcome = str(speech.finish_reason)
        if speech.error is not None:
            cancelled = isinstance(speech.error, CancelledError)
            outcome = "cancelled" if cancelled else type(speech.error).__name__
        return cls(
            speech.model,
            outcome,
            since(speech.started),
            since(speech.first_audio),
            since(speech.ended) or 0.0,
            speech.samples / speech.sample_rate if speech.sample_rate else 0.0,
            speech.token_count,
        )

    @property
    def real_time_factor(self) -> float | None:
        """Seconds of processing, without the queue, by seconds of sound; None without sound."""
        if self.started is None or not self.audio_seconds:
            return None
        return (self.seconds - self.started) / self.audio_seconds


@dataclass(frozen=True)
class Statistics:
    """The state of an engine at one moment.

    queued, running: requests.
    places: of the loaded models' batches.
    loaded: names, the last used first.
    steps, ids, audio_seconds: since the start; ids are decoder rows of requests that ended.
    outcomes: how many requests ended each way, as in `Ended`.
    """

    queued: int = 0
    running: int = 0
    places: int = 0
    loaded: tuple[str, ...] = ()
    steps: int = 0
    ids: int = 0
    audio_seconds: float = 0.0
    outcomes: Mapping[str, int] = field(default_factory=dict)
