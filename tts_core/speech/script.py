"""Long texts whose pieces are requests of their own."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace
from typing import Any, Generic, TypeVar

import numpy as np

from tts_core.audio.delivery import Delivery, Pacing
from tts_core.results import FinishReason, GenerationResult, Meter, SpokenPiece
from tts_core.speech.together import Line, Single

SIDE_BY_SIDE = 8  # pieces of a text at once, at most


Request = TypeVar("Request", bound=Any)
One = TypeVar("One", SpokenPiece, GenerationResult)


class Pieces(Generic[Request, One]):
    """The state of a text whose pieces are requests.

    whole: a model's request, with pieces, max_frames, seed and pacing.
    """

    def __init__(self, whole: Request):
        self.whole = whole
        self.spoken: dict[int, One] = {}

    @property
    def frames(self) -> int:
        """Number of frames generated so far."""
        return sum(one.codes.shape[1] for one in self.spoken.values())

    @property
    def done(self) -> bool:
        """True once every piece is spoken or max_frames are reached."""
        return len(self.spoken) == len(self.whole.pieces) or self.frames == self.whole.max_frames

    @property
    def finish_reason(self) -> FinishReason:
        """ "stop" if every piece was spoken and ended by itself, else "length"."""
        whole = len(self.spoken) == len(self.whole.pieces)
        ended = all(one.finish_reason == "stop" for one in self.spoken.values())
        return "stop" if whole and ended else "length"

    def ready(self, running: Collection[int]) -> list[int]:
        """List all pieces that may begin; with a limit on total frames one at a time, as each leaves the next
        its remaining frames.
        """
        most = None if self.whole.max_frames is None else 1 - len(running)
        left = {*range(len(self.whole.pieces))} - self.spoken.keys() - {*running}
        return [] if self.done else [place for place in sorted(left) if self.may_begin(place)][:most]

    def may_begin(self, place: int) -> bool:
        """Return True if the pieces that a piece continues are spoken."""
        return True


def line(request: Any, meter: Meter) -> Line:
    """Build the line of a text: its only request, or a script. meter: from the beginning of the text."""
    return Single(request) if len(request.pieces) == 1 else Script(request, meter)


class Script(Pieces[Any, GenerationResult], Line):
    """A text whose pieces do not depend on each other's sound. meter: from its beginning."""

    def __init__(self, whole: Any, meter: Meter):
        super().__init__(whole)
        self.meter = meter

    def request(self, place: int) -> Any:
        """Build the request of a piece by itself, at speed 1."""
        whole = self.whole
        return replace(
            whole,
            pieces=(whole.pieces[place],),
            max_frames=None if whole.max_frames is None else whole.max_frames - self.frames,
            pacing=Pacing((whole.pacing.texts[place],), (None, None)),
        )

    def add(self, place: int, result: GenerationResult) -> None:
        self.spoken[place] = result

    def result(self) -> GenerationResult:
        """Join the pieces. A stage has its share of the time, as pieces ran at once."""
        parts = [self.spoken[place] for place in sorted(self.spoken)]
        delivery = Delivery(self.whole.pacing, self.meter.sample_rate)
        audio = delivery.whole([part.audio for part in parts])
        self.meter.add(len(audio))
        self._count_stages(parts)
        return self.meter.result(
            audio,
            np.concatenate([part.codes for part in parts], axis=1),
            seed=self.whole.seed,
            token_count=sum(part.token_count for part in parts),
            peak_bytes=max(part.peak_memory_usage for part in parts),
            finish_reason=self.finish_reason,
            cues=delivery.cues(),
        )

    def _count_stages(self, parts: list[GenerationResult]) -> None:
        known = self.meter.stage_seconds
        spent = {name: sum(part.stage_seconds[name] for part in parts) for name in known}
        scale = min(1.0, (self.meter.seconds - sum(known.values())) / (sum(spent.values()) or 1.0))
        for name, seconds in spent.items():
            known[name] += math.floor(1e6 * scale * seconds) / 1e6  # no more in all than the time that passed
