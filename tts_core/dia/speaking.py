"""The parts of one request's speech: its pieces in turn, each window by window."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tts_core.audio.delivery import Delivery
from tts_core.codecs.dac_calls import Passage
from tts_core.dia.long_text import DiaScript
from tts_core.dia.request import DiaRequest
from tts_core.dia.text import words_of
from tts_core.results import FinishReason, GenerationResult, Meter, join
from tts_core.text.duration import warn_of_cut


@dataclass(frozen=True, eq=False)
class DiaWindow:
    """Frames of a piece whose samples are final.

    filled: rows of the piece's grid, as they were known.
    finish_reason: of the piece, with its last window.
    """

    passage: Passage
    filled: int
    finish_reason: FinishReason | None


class DiaSpeaking:
    """Speech in progress. `begin` gives the request of each piece, `part` takes its windows in order.

    request: with its reference encoded.
    """

    def __init__(self, request: DiaRequest, meter: Meter):
        self.request, self.meter = request, meter
        self.script = DiaScript(request, meter) if len(request.pieces) > 1 else None
        self.delivery = Delivery(request.pacing, meter.sample_rate)
        self.done = False
        self._place, self._segment = 0, 0
        self._heard: list[GenerationResult] = []

    def begin(self) -> DiaRequest:
        """Build the request of the next piece."""
        self._heard = []
        self.piece = self.request
        if self.script is not None:
            self._place, *_ = self.script.ready(())
            self.piece = self.script.request(self._place)
        return self.piece

    def part(self, window: DiaWindow, audio: np.ndarray, *, peak_bytes: int) -> GenerationResult:
        """Build the next part from a window of the piece and its samples (L,)."""
        (codes, start, stop), script = window.passage, self.script
        ended = window.finish_reason is not None
        raw = self.meter.result(
            audio,
            codes[:, start:stop],
            seed=self.piece.seeds[0],
            token_count=window.filled,
            peak_bytes=peak_bytes,
            segment_idx=self._segment,
            finish_reason=window.finish_reason,
        )
        self.done = ended
        if script is not None:
            self._heard.append(raw)
            if ended:
                script.add(self._place, join(self._heard))
            self.done = script.done
        if ended:
            self._warn(window)
        sound = self.delivery.add(audio, last_of_piece=ended and not self.done)
        if self.done:
            sound = np.concatenate([sound, self.delivery.finish()])
        self.meter.add(len(sound))
        part = self.meter.result(
            sound,
            raw.codes,
            seed=self.piece.seeds[0],
            token_count=window.filled,
            peak_bytes=peak_bytes,
            segment_idx=self._segment,
            finish_reason=window.finish_reason if self.done else None,
            cues=self.delivery.cues(),
        )
        self._segment += 1
        if script is None:
            return part
        return script.part(part, ended=[self._place] if ended else [], rows=0 if ended else window.filled)

    def _warn(self, window: DiaWindow) -> None:
        """Log a warning if the piece reached the limit of its own length."""
        if self.piece.own_limits and window.finish_reason == "length":
            warn_of_cut(self.piece.limits[0], self.request.frame_rate, words_of(self.piece.tokens))
