"""The parts of a request's speech: what is decoded, with its pauses, captions, words and times."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Any

import numpy as np

from tts_core.audio.delivery import Delivery
from tts_core.results import FinishReason, GenerationResult, Meter, SpokenPiece
from tts_core.speaking.speech import Sound


class Delivered:
    """A request's parts so far.

    request: of a model, with pacing, is_open, and seed, None if the caller gave the random numbers.
    meter: from the beginning of the speech.
    """

    def __init__(self, request: Any, meter: Meter):
        self.request, self.meter = request, meter
        self._delivery: Delivery | None = None  # once the silence before the first piece is known
        self._parts = self._rows = 0  # so far; of the pieces that have ended
        self._is_live = request.is_open and bool(request.pacing.texts)  # sentence by sentence
        self._most: int | None = None  # samples
        if self._is_live and request.most_seconds is not None:
            self._most = math.ceil(request.most_seconds / request.speed * meter.sample_rate)
        self._waves: list[np.ndarray] = []  # of the piece under way, before its delivery

    def parts(
        self, window: Sound, samples: np.ndarray, reason: FinishReason | None, *, peak_bytes: int
    ) -> list[GenerationResult]:
        """Build the next part from a window and its samples, (L,), and the last one if it reaches the limit.

        reason: of the end of the speech, with its last part.
        """
        delivery = self._begun(window)
        if window.pacing is not None:
            delivery.extend(window.pacing)
        delivery.time(window.words)
        piece = self._piece(window, samples)
        is_last = window.ends and reason is None
        audio = delivery.add(samples, last_of_piece=is_last, is_followed=not self._is_live)
        if reason is not None:
            audio = np.concatenate([audio, delivery.finish()])
        part = self._part(window, audio[: self._left], reason, peak_bytes, delivery)
        parts = [part if piece is None else replace(part, pieces=(piece,))]
        if self._left == 0 and reason is None:
            rows = 0 if window.ends else window.token_count
            empty = replace(window, codes=window.codes[:, :0], token_count=rows, ends=False)
            parts.append(self._part(empty, audio[:0], "length", peak_bytes, delivery))
        return parts

    def count(self, stage: str, begun: float) -> None:
        """Add the time of a stage, if it has a name. begun: seconds of the clock."""
        if stage:
            self.meter.stage_seconds[stage] += time.perf_counter() - begun

    @property
    def _left(self) -> int | None:
        """Samples up to the limit; None without one."""
        return None if self._most is None else self._most - self.meter.samples

    def _part(
        self,
        window: Sound,
        audio: np.ndarray,
        reason: FinishReason | None,
        peak_bytes: int,
        delivery: Delivery,
    ) -> GenerationResult:
        self.meter.add(len(audio))
        self._parts += 1
        rows = self._rows + window.token_count
        if window.ends:
            self._rows = rows
        return self.meter.result(
            audio,
            window.codes,
            seed=self.request.seed,
            token_count=rows,
            peak_bytes=peak_bytes,
            segment_idx=self._parts - 1,
            finish_reason=reason,
            cues=delivery.cues(),
            words=delivery.words(),
        )

    def _piece(self, window: Sound, samples: np.ndarray) -> SpokenPiece | None:
        """Return the piece that a window ends, with its sound."""
        if window.in_result:
            self._waves.append(samples)
        if window.piece is None:
            return None
        waves, self._waves = self._waves, []
        return replace(window.piece, audio=np.concatenate(waves))

    def _begun(self, window: Sound) -> Delivery:
        if self._delivery is None:
            pacing, is_open = self.request.pacing, self.request.is_open
            if is_open and not pacing.texts:
                pacing = replace(pacing, silences=(window.lead,))
            self._delivery = Delivery(pacing, self.meter.sample_rate, more=is_open)
        return self._delivery
