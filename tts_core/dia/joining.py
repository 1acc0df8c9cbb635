"""A text that joins texts in progress."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tts_core.dia.sampling import DiaSampling
from tts_core.nn.noise import Noise


@dataclass(frozen=True, eq=False)
class DiaJoining:
    """A text that takes a slot.

    tokens: (S,) int32.
    grid: (rows, C) int32, forced ids or FREE; the first `filled` rows are known.
    prompt_frames, max_frames: frames before its speech, and of it at most.
    """

    tokens: np.ndarray
    grid: np.ndarray
    filled: int
    prompt_frames: int
    max_frames: int
    sampling: DiaSampling
    noise: Noise
