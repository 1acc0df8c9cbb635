"""A text of Dia in the running batch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from tts_core.dia.grid import FREE, DelayGrid
from tts_core.dia.sampling import DiaSampling
from tts_core.nn.noise import Noise
from tts_core.speaking.rows import BatchText, TextInputs

RUNNING = -(2**30)  # in place of the rows since the end of a text that has none


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

    @property
    def reads(self) -> int:
        """Bytes of the text, or rows before the last known one."""
        return max(super().reads, len(self.tokens))

    def given(self, text: BatchText) -> np.ndarray:
        """Return what is known of the row that the next step draws, (3 + C,) int32, as in DiaGiven."""
        return self._known[min(text.steps, len(self._known) - 1)]

    @cached_property
    def _known(self) -> np.ndarray:
        """Of all rows that are drawn, and of one after them. (rows, 3 + C) int32."""
        forced = np.pad(self.grid[self.filled :], ((0, 1), (0, 0)), constant_values=FREE)
        rows = np.arange(self.filled, self.filled + len(forced))
        numbers = (
            np.full(len(rows), len(self.tokens)),
            rows > self.prompt_frames + self.max_frames,
            (forced != FREE).any(axis=1),
        )
        return np.column_stack((*numbers, forced)).astype(np.int32)

    def uniform(self, step: int, shape: tuple[int, ...]) -> np.ndarray:
        """Return the numbers of a step; 0.5 if none is used."""
        return (
            self.noise.uniform(step, shape) if self.sampling.temperature else np.full(shape, 0.5, np.float32)
        )


class DiaGiven(NamedTuple):
    """What the host knows of the rows that a step draws, of N texts.

    lengths: (N,), bytes of the texts.
    is_last: (N,), 1 where the speech ends at the latest.
    is_forced: (N,), 1 where ids are forced.
    forced: (N, C), forced ids or FREE.
    """

    lengths: np.ndarray
    is_last: np.ndarray
    is_forced: np.ndarray
    forced: np.ndarray

    @classmethod
    def of(cls, given: np.ndarray) -> DiaGiven:
        """Split the numbers of a batch, (N, 3 + C)."""
        lengths, is_last, is_forced = given[:, :3].T
        return cls(lengths, is_last, is_forced, given[:, 3:])
