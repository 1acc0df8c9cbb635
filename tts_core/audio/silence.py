"""Where a recording begins and ends to sound, by the level of its frames.

Definition: librosa 0.11 `effects.trim` (ISC), written anew. Differs from upstream: in float64. (What
tts_core/audio/trim.py follows is an older rule, which mirrors the signal at its ends.)
"""

from __future__ import annotations

import numpy as np

FRAME_LENGTH, HOP_LENGTH = 2048, 512  # samples
QUIETEST = 1e-10  # power below which levels are equal


def sounding(samples: np.ndarray, below_db: float) -> tuple[int, int]:
    """First and last + 1 sample of the frames that are less than below_db under the loudest one.

    samples: (L,), silent beyond both ends. A recording of nothing but zeros sounds throughout.
    """
    padded = np.pad(np.asarray(samples, np.float64), FRAME_LENGTH // 2)
    power = np.lib.stride_tricks.sliding_window_view(padded**2, FRAME_LENGTH)[::HOP_LENGTH].mean(axis=1)
    level = 10 * np.log10(np.maximum(power, QUIETEST))
    (loud,) = np.nonzero(level > level.max() - below_db)
    return int(loud[0]) * HOP_LENGTH, min(len(samples), (int(loud[-1]) + 1) * HOP_LENGTH)


def trim(samples: np.ndarray, below_db: float) -> np.ndarray:
    """The part between the bounds of `sounding`."""
    start, stop = sounding(samples, below_db)
    return samples[start:stop]
