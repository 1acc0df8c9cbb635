"""A text of Dia in the running batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tts_core.dia.grid import FREE, DelayGrid
from tts_core.dia.sampling import DiaSampling
from tts_core.nn.noise import Noise
from tts_core.speaking.rows import BatchText, TextInputs

PROMPT, SPEECH, LIMIT = range(3)  # phases of a row: an end of speech is ignored, ends the text, is forced
NEVER = 2**30  # in place of the row of an end that has not come


@dataclass(frozen=True, eq=False)
class DiaInputs(TextInputs):
    """A text, and the rows of its grid.

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

    @classmethod
    def of(cls, grid: DelayGrid, tokens: np.ndarray, sampling: DiaSampling, noise: Noise) -> DiaInputs:
        """Describe a text whose grid is new. tokens: (S,) int32, with its transcript."""
        frames = grid.prompt_frames, grid.max_frames
        return cls(tokens, grid.rows.copy(), grid.filled, *frames, sampling, noise)

    @property
    def rows(self) -> int:
        """Rows of the network: the conditional one and, with guidance, the unconditional one."""
        return 1 + (self.sampling.cfg_scale != 0)

    @property
    def positions(self) -> int:
        """Rows before the last known one, with which the first step begins."""
        return self.filled - 1

    def given(self, text: BatchText) -> np.ndarray:
        """Return what is known of the row that the next step draws, (3 + C,) int32: as DiaGiven, in order."""
        row = self.filled + text.steps
        phase = PROMPT if row <= self.prompt_frames else SPEECH
        phase = LIMIT if row > self.prompt_frames + self.max_frames else phase
        forced = self.grid[row] if row < len(self.grid) else np.full(self.grid.shape[1], FREE)
        return np.array([len(self.tokens), row, phase, *forced], np.int32)

    def uniform(self, step: int, shape: tuple[int, ...]) -> np.ndarray:
        """Return the numbers of a step; 0.5 if none is used."""
        return (
            self.noise.uniform(step, shape) if self.sampling.temperature else np.full(shape, 0.5, np.float32)
        )


class DiaGiven(NamedTuple):
    """What the host knows of the rows that a step draws, of N texts.

    lengths: (N,), bytes of the texts.
    numbers: (2, N), of the rows: the row itself, and its phase.
    forced: (N, C), ids or FREE.
    """

    lengths: np.ndarray
    numbers: np.ndarray
    forced: np.ndarray

    @classmethod
    def of(cls, given: np.ndarray) -> DiaGiven:
        """Split the numbers of a batch, (N, 3 + C)."""
        return cls(given[:, 0], given[:, 1:3].T, given[:, 3:])
