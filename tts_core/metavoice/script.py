"""A text of a batch: its pieces, which are requests of their own, and the codes of those already spoken."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from tts_core.audio.delivery import Pacing
from tts_core.metavoice.request import Request
from tts_core.results import FinishReason, GenerationResult, join
from tts_core.speech.together import Line


class Script(Line):
    """The state of a text whose pieces are requests."""

    def __init__(self, request: Request):
        self.whole = request
        self.spoken: dict[int, GenerationResult] = {}

    @property
    def frames(self) -> int:
        """Number of frames generated so far."""
        return sum(one.codes.shape[1] for one in self.spoken.values())

    @property
    def done(self) -> bool:
        """True once every piece is spoken or max_frames are reached."""
        return len(self.spoken) == len(self.whole.pieces) or self.frames == self.whole.max_frames

    @property
    def codes(self) -> list[np.ndarray]:
        """Codes of the pieces that were spoken, (Q, F) int32 each."""
        return [self.spoken[place].codes for place in sorted(self.spoken)]

    @property
    def finish_reason(self) -> FinishReason:
        """ "stop" if every piece was spoken and ended by itself, else "length"."""
        whole = len(self.spoken) == len(self.whole.pieces)
        ended = all(one.finish_reason == "stop" for one in self.spoken.values())
        return "stop" if whole and ended else "length"

    def ready(self, running: Collection[int]) -> list[int]:
        """As in Line: all pieces. With a limit on total frames one at a time: each leaves the next its
        remaining frames.
        """
        pieces, most = len(self.whole.pieces), None if self.whole.max_frames is None else 1 - len(running)
        left = [place for place in range(pieces) if place not in self.spoken and place not in running]
        return [] if self.done else left[:most]

    def request(self, place: int) -> Request:
        """As in Line: the piece by itself, at speed 1."""
        whole = self.whole
        return replace(
            whole,
            pieces=(whole.pieces[place],),
            max_frames=None if whole.max_frames is None else whole.max_frames - self.frames,
            pacing=Pacing((whole.pacing.texts[place],), (None, None)),
        )

    def add(self, place: int, result: GenerationResult) -> None:
        """As in Line. result: of the whole piece."""
        self.spoken[place] = result

    def result(self) -> GenerationResult:
        """As in Line: the parts, one after the other."""
        parts = [self.spoken[place] for place in sorted(self.spoken)]
        whole = replace(
            parts[-1], token_count=sum(part.token_count for part in parts), finish_reason=self.finish_reason
        )
        return join([*parts[:-1], whole])
