"""Join pieces of speech without clicks: fade out, pause, fade in."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tts_core.errors import UsageError

PAUSE = 0.2  # seconds between sentences
FADE = 0.02  # seconds: much longer than a click, shorter than a phoneme


class Splicer:
    """Joins pieces chunk by chunk and returns samples once they are final.

    The first piece's beginning and the last piece's end are unchanged.
    """

    def __init__(self, sample_rate: int, *, pause_seconds: float = PAUSE, fade_seconds: float = FADE):
        if pause_seconds < 0 or fade_seconds < 0:
            raise UsageError(f"join: pause {pause_seconds} and fade {fade_seconds} seconds; give 0 or more")
        self.sample_rate = sample_rate
        self.pause = round(pause_seconds * sample_rate)
        self.fade = round(fade_seconds * sample_rate)
        self._held = np.zeros(0, np.float32)  # the piece's last samples so far; they may need to fade out
        self._faded_in = self.fade  # samples of the piece that are already faded in

    def add(
        self, part: np.ndarray, *, last_of_piece: bool = False, pause_seconds: float | None = None
    ) -> np.ndarray:
        """Add the next (L,) samples of the current piece and return the samples that are now final.

        pause_seconds: after the last chunk of a piece, in place of the usual pause.
        """
        samples = np.concatenate([self._held, self._fade_in(part.astype(np.float32))])
        held = min(self.fade, len(samples))
        self._held = samples[len(samples) - held :]
        ready = samples[: len(samples) - held]
        if not last_of_piece:
            return ready
        pause = self.pause if pause_seconds is None else round(pause_seconds * self.sample_rate)
        return np.concatenate([ready, self._end_piece(pause)])

    def finish(self) -> np.ndarray:
        """Return the rest of the last piece, unchanged."""
        held, self._held = self._held, np.zeros(0, np.float32)
        return held

    def _fade_in(self, part: np.ndarray) -> np.ndarray:
        start, stop = self._faded_in, min(self.fade, self._faded_in + len(part))
        self._faded_in = stop
        faded = part.copy()
        faded[: stop - start] *= rise(self.fade)[start:stop]
        return faded

    def _end_piece(self, pause: int) -> np.ndarray:
        """End a piece that another follows: fade out its held end and add the pause, in samples."""
        end = self.finish()
        self._faded_in = 0
        return np.concatenate([end * rise(self.fade)[: len(end)][::-1], np.zeros(pause, np.float32)])


def splice(
    pieces: Sequence[np.ndarray],
    sample_rate: int,
    *,
    pause_seconds: float = PAUSE,
    fade_seconds: float = FADE,
) -> np.ndarray:
    """Join the (L,) samples of all pieces, in order, as float32; a single piece is unchanged."""
    splicer = Splicer(sample_rate, pause_seconds=pause_seconds, fade_seconds=fade_seconds)
    parts = [splicer.add(piece, last_of_piece=index < len(pieces) - 1) for index, piece in enumerate(pieces)]
    return np.concatenate([*parts, splicer.finish()])


def rise(length: int) -> np.ndarray:
    """Compute half a cosine from almost 0 to almost 1. → (length,) float32."""
    return (0.5 - 0.5 * np.cos(np.pi * np.arange(1, length + 1) / (length + 1))).astype(np.float32)
