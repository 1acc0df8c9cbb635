"""Cutting silence off both ends of speech, as librosa.effects.trim does with its defaults.

Source: librosa (ISC); MARS5 trims what it says so. Differs from upstream: sound too short to mirror at its
ends is left as it is, where upstream fails.
"""

from __future__ import annotations

import numpy as np

from tts_core.errors import UsageError

FRAME = 2048  # samples
HOP = 512
MARGIN = FRAME // 2  # mirrored at each end, so that frame i is centred on sample i * HOP
QUIETEST = 1e-10  # power below which all is equally silent


def trim(samples: np.ndarray, trim_db: float) -> np.ndarray:
    """The samples from the first loud frame to the last. (L,) → a view of it."""
    start, stop = loud_span(samples, trim_db)
    return samples[start:stop]


def loud_span(samples: np.ndarray, trim_db: float) -> tuple[int, int]:
    """Where sound begins and ends in (L,) samples: start and stop.

    trim_db: a frame is silent `trim_db` or more below the loudest. Samples with NaN or infinity among them
    have no level; all are kept.
    Raises UsageError where it is not positive.
    """
    if not trim_db > 0:
        raise UsageError(f"trim_db: {trim_db} is not a number > 0; larger trims less")
    if len(samples) <= MARGIN or not np.isfinite(samples).all():
        return 0, len(samples)
    power = frame_power(samples)
    level = 10 * np.log10(np.maximum(QUIETEST, power))
    loud = np.flatnonzero(level - level.max() > -trim_db)
    return HOP * int(loud[0]), min(len(samples), HOP * (int(loud[-1]) + 1))


def frame_power(samples: np.ndarray) -> np.ndarray:
    """Mean square of frames of FRAME samples, one every HOP. (L,) → (1 + L // HOP,) float32."""
    padded = np.pad(samples.astype(np.float32), MARGIN, mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(padded, FRAME)[::HOP]
    return np.sqrt(np.mean(frames * frames, axis=-1)) ** 2
