"""The parts of a request's speech: what is decoded, with its pauses, captions, words and times."""

from __future__ import annotations

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
        self._parts = 0
        self._waves: list[np.ndarray] = []  # of the piece under way, before its delivery

    def part(
        self, window: Sound, samples: np.ndarray, reason: FinishReason | None, *, peak_bytes: int
    ) -> GenerationResult:
        """Build the next part from a window and its samples, (L,).

        reason: of the end of the speech, with its last part.
        """
        delivery = self._begun(window)
        delivery.time(window.words)
        piece = self._piece(window, samples)
        if window.pacing is not None:
            delivery.extend(window.pacing)
        audio = delivery.add(samples, last_of_piece=window.ends and reason is None)
        if reason is not None:
            audio = np.concatenate([audio, delivery.finish()])
        self.meter.add(len(audio))
        self._parts += 1
        part = self.meter.result(
            audio,
            window.codes,
            seed=self.request.seed,
            token_count=window.token_count,
            peak_bytes=peak_bytes,
            segment_idx=self._parts - 1,
            finish_reason=reason,
            cues=delivery.cues(),
            words=delivery.words(),
        )
        return part if piece is None else replace(part, pieces=(piece,))

    def _piece(self, window: Sound, samples: np.ndarray) -> SpokenPiece | None:
        """Return the piece that a window ends, with its sound."""
        if window.is_kept:
            self._waves.append(samples)
        if window.piece is None:
            return None
        waves, self._waves = self._waves, []
        return replace(window.piece, audio=np.concatenate(waves))

    def _begun(self, window: Sound) -> Delivery:
        if self._delivery is None:
            pacing = self.request.pacing
            if self.request.is_open:
                pacing = replace(pacing, silences=(window.lead,))
            self._delivery = Delivery(pacing, self.meter.sample_rate, more=self.request.is_open)
        return self._delivery
