"""One request while it is spoken piece by piece: the piece under way, and the results of those that ended."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import numpy as np

from tts_core.audio.delivery import Delivery
from tts_core.results import FinishReason, GenerationResult, Meter

Request = TypeVar("Request", bound=Any)  # a model's, with pieces, max_frames, seed and pacing
Piece = TypeVar("Piece")


class Speaking(Generic[Request, Piece]):
    """A request and its progress. Pieces are heard, then delivered, in order.

    frames: of the pieces that were delivered.
    ids: drawn for the pieces that were heard; subclasses count them.
    is_cut: True once a piece did not end by itself; subclasses set it.
    done: True once its last piece is delivered.
    """

    def __init__(self, request: Request, meter: Meter):
        self.request, self.meter = request, meter
        self.place, self.frames, self.ids = 0, 0, 0
        self.is_cut = self.done = False
        self._delivery = Delivery(request.pacing, meter.sample_rate)

    @property
    def piece(self) -> Piece:
        """The piece under way."""
        return self.request.pieces[self.place]

    def deliver(self, codes: np.ndarray, sound: np.ndarray, *, peak_bytes: int) -> GenerationResult:
        """Take the piece's codes (Q, F) and samples (L,); the next piece is then under way."""
        self.frames += codes.shape[1]
        self.place += 1
        at_end = self.place == len(self.request.pieces)
        self.done = at_end or self.frames == self.request.max_frames
        audio = self._delivery.add(sound, last_of_piece=not self.done)
        reason: FinishReason | None = None
        if self.done:
            audio = np.concatenate([audio, self._delivery.finish()])
            reason = "stop" if at_end and not self.is_cut else "length"
        self.meter.add(len(audio))
        return self.meter.result(
            audio,
            codes,
            seed=self.request.seed,
            token_count=self.ids,
            peak_bytes=peak_bytes,
            segment_idx=self.place - 1,
            finish_reason=reason,
            cues=self._delivery.cues(),
        )
