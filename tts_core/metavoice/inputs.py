"""What a text of MetaVoice brings to the running batch of the first stage."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tts_core.metavoice.sampling import FirstStageSampling
from tts_core.nn.noise import Noise
from tts_core.speaking.rows import TextInputs

ROWS = 2  # of a text with the usual guidance
MOST_ROWS = 3  # of a text


def most_rows(texts: int) -> int:
    """Count the rows of a batch: enough for `texts` texts of usual guidance, and for any one."""
    return max(MOST_ROWS, ROWS * texts)


@dataclass(frozen=True, eq=False)
class MetaVoiceInputs(TextInputs):
    """A text that takes a slot.

    tokens: (S,) int32, S > 0, end of text included.
    vector: (E,) float32, its speaker's.
    noise: read at the index of each new id.
    """

    tokens: np.ndarray
    vector: np.ndarray
    sampling: FirstStageSampling
    noise: Noise

    @property
    def rows(self) -> int:
        return self.sampling.rows

    @property
    def positions(self) -> int:
        return len(self.tokens) - 1

    def uniform(self, step: int, shape: tuple[int, ...]) -> np.ndarray:
        """Return the numbers of a draw; 0.5 if it is greedy."""
        return np.full(shape, 0.5, np.float32) if self.sampling.greedy else self.noise.uniform(step, shape)
