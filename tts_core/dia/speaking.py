"""The parts of one request's speech: its pieces in turn, each window by window."""

from __future__ import annotations

import numpy as np

from tts_core.audio.delivery import Delivery
from tts_core.dia.grid import DelayGrid
from tts_core.dia.long_text import Script
from tts_core.dia.request import Request, Run
from tts_core.dia.text import words_of
from tts_core.results import GenerationResult, Meter, join
from tts_core.text.duration import warn_of_cut


class Speaking:
    """Speech in progress. `begin` gives the run of each piece, `part` takes its windows in order.

    request: with its reference encoded.
    """

    def __init__(self, request: Request, meter: Meter):
        self.request, self.meter = request, meter
        self.script = Script(request, meter) if len(request.pieces) > 1 else None
        self.delivery = Delivery(request.pacing, meter.sample_rate)
        self.done = False
        self._place, self._segment = 0, 0
        self._heard: list[GenerationResult] = []

    def begin(self) -> Run:
        """Build the run of the next piece."""
        self._heard = []
        if self.script is None:
            self.run = self.request.run()
        else:
            self._place, *_ = self.script.ready(())
            self.run = self.script.request(self._place).run()
        return self.run

    def part(
        self, grid: DelayGrid, start: int, stop: int, audio: np.ndarray, *, peak_bytes: int
    ) -> GenerationResult:
        """Build the next part from frames [start, stop) of the piece's grid and their samples (L,).

        The last window of a piece is the one that ends at its last frame, once the grid is done.
        """
        codes, script = grid.codes(), self.script
        ended = grid.done and stop == codes.shape[1]
        raw = self.meter.result(
            audio,
            codes[:, start:stop],
            seed=self.run.seed,
            token_count=grid.filled,
            peak_bytes=peak_bytes,
            segment_idx=self._segment,
            finish_reason=grid.finish_reason if ended else None,
        )
        self.done = ended
        if script is not None:
            self._heard.append(raw)
            if ended:
                script.add(self._place, join(self._heard))
            self.done = script.done
        if ended:
            self._warn(grid)
        sound = self.delivery.add(audio, last_of_piece=ended and not self.done)
        if self.done:
            sound = np.concatenate([sound, self.delivery.finish()])
        self.meter.add(len(sound))
        part = self.meter.result(
            sound,
            raw.codes,
            seed=self.run.seed,
            token_count=grid.filled,
            peak_bytes=peak_bytes,
            segment_idx=self._segment,
            finish_reason=grid.finish_reason if self.done else None,
            cues=self.delivery.cues(),
        )
        self._segment += 1
        if script is None:
            return part
        return script.part(part, ended=[self._place] if ended else [], rows=0 if ended else grid.filled)

    def _warn(self, grid: DelayGrid) -> None:
        """Log a warning if the piece reached the limit of its own length."""
        if self.run.own_limit and grid.finish_reason == "length":
            warn_of_cut(self.run.max_frames, self.request.frame_rate, words_of(self.run.tokens))
