"""Trim silence at both ends by frame level (librosa `effects.trim`, ISC, rewritten).

Two rules, as published models use both: librosa up to 0.9 mirrors the signal at its ends, later versions pad
it with zeros. They differ if sound reaches an end.
"""

from __future__ import annotations

import numpy as np

from tts_core.errors import UsageError

FRAME_LENGTH, HOP_LENGTH = 2048, 512  # samples
QUIETEST = 1e-10  # power below which levels are equal
MARGIN = FRAME_LENGTH // 2  # added at each end, so that frame i is centered on sample i * HOP_LENGTH


def loud_span(samples: np.ndarray, trim_db: float) -> tuple[int, int]:
    """Find the first sample and last + 1 of frames less than trim_db below the loudest; mirrored, in float32.

    samples: (L,). The span is the whole signal if it is too short to mirror (upstream fails there), or has
    NaN or infinite samples.
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
    """Find the first sample and last + 1 of frames less than below_db below the loudest; padded, in float64.

    samples: (L,). The span is the whole signal if all samples are zero.
    Source: MetaVoice's rule, librosa 0.11, in float64.
    """
    padded = np.pad(np.asarray(samples, np.float64), MARGIN)
    return _span(_frame_power(padded), len(samples), below_db)


def trim(samples: np.ndarray, below_db: float) -> np.ndarray:
    """Return the part between the bounds of `sounding`, as a view."""
    start, stop = sounding(samples, below_db)
    return samples[start:stop]


def _frame_power(padded: np.ndarray) -> np.ndarray:
    """Compute the mean square of each frame."""
    frames = np.lib.stride_tricks.sliding_window_view(padded, FRAME_LENGTH)[::HOP_LENGTH]
    return np.mean(frames * frames, axis=-1)


def _span(power: np.ndarray, length: int, below_db: float) -> tuple[int, int]:
    level = 10 * np.log10(np.maximum(QUIETEST, power))
    below = max(below_db, float(np.finfo(np.float32).tiny))  # the loudest frame is loud at any threshold
    loud = np.flatnonzero(level - level.max() > -below)
    return HOP_LENGTH * int(loud[0]), min(length, HOP_LENGTH * (int(loud[-1]) + 1))
