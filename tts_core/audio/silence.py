"""Trim silence at both ends by frame level (librosa `effects.trim`, ISC, written anew).

Two rules, because models were published with two: librosa up to 0.9 mirrors the signal at its ends, later
versions take it as silent beyond them. They differ where sound reaches an end.
"""

from __future__ import annotations

import numpy as np

from tts_core.errors import UsageError

FRAME_LENGTH, HOP_LENGTH = 2048, 512  # samples
QUIETEST = 1e-10  # power below which levels are equal
MARGIN = FRAME_LENGTH // 2  # added at each end, so that frame i is centered on sample i * HOP_LENGTH


def loud_span(samples: np.ndarray, trim_db: float) -> tuple[int, int]:
    """First sample and last + 1 of the frames less than trim_db below the loudest; mirrored ends, in float32.

    samples: (L,). All of it where it is too short to mirror (upstream fails there), and where a sample is NaN
    or infinite and so has no level.
    Raises UsageError unless trim_db is positive.
    Source: MARS5's rule, librosa 0.9.
    """
    if not trim_db > 0:
        raise UsageError(f"trim_db: {trim_db} is not a number > 0; larger trims less")
    if len(samples) <= MARGIN or not np.isfinite(samples).all():
        return 0, len(samples)
    padded = np.pad(samples.astype(np.float32), MARGIN, mode="reflect")
    return _span(np.sqrt(_frame_power(padded)) ** 2, len(samples), trim_db)


def sounding(samples: np.ndarray, below_db: float) -> tuple[int, int]:
    """First sample and last + 1 of the frames less than below_db below the loudest; silent ends, in float64.

    samples: (L,). All of it where it is nothing but zeros.
    Source: MetaVoice's rule, librosa 0.11, in float64.
    """
    padded = np.pad(np.asarray(samples, np.float64), MARGIN)
    return _span(_frame_power(padded), len(samples), below_db)


def trim(samples: np.ndarray, below_db: float) -> np.ndarray:
    """The part between the bounds of `sounding`: a view."""
    start, stop = sounding(samples, below_db)
    return samples[start:stop]


def _frame_power(padded: np.ndarray) -> np.ndarray:
    """Mean square of each frame."""
    frames = np.lib.stride_tricks.sliding_window_view(padded, FRAME_LENGTH)[::HOP_LENGTH]
    return np.mean(frames * frames, axis=-1)


def _span(power: np.ndarray, length: int, below_db: float) -> tuple[int, int]:
    level = 10 * np.log10(np.maximum(QUIETEST, power))
    loud = np.flatnonzero(level - level.max() > -below_db)
    return HOP_LENGTH * int(loud[0]), min(length, HOP_LENGTH * (int(loud[-1]) + 1))
