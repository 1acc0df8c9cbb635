"""The grid of codes that Dia2 reads and writes: stream c of a frame lags by delay[c] columns.

Source: nari-labs/dia2@8687268, Apache-2.0.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tts_core.nn.sentinels import Sentinel

FREE = Sentinel.FREE  # in place of a code that is not known to the host


def apply_delay(codes: np.ndarray, delays: Sequence[int], pad: int) -> np.ndarray:
    """Shift stream c right by delays[c]. (Q, T) → (Q, T + max(delays)), `pad` where nothing is."""
    delayed = np.full((codes.shape[0], codes.shape[1] + max(delays)), pad, codes.dtype)
    for stream, delay in enumerate(delays):
        delayed[stream, delay : delay + codes.shape[1]] = codes[stream]
    return delayed


def revert_delay(grid: np.ndarray, delays: Sequence[int]) -> np.ndarray:
    """Undo `apply_delay` and drop frames without all codes. (Q, T) → (Q, T - max(delays))."""
    frames = max(0, grid.shape[1] - max(delays))
    return np.stack([row[delay : delay + frames] for row, delay in zip(grid, delays, strict=True)])


class CodeGrid:
    """Columns of one text, written one at a time. Host integers only.

    prefix: (Q, P) int32 codes that are read first; empty without one.  columns: in total, with the prefix's.
    """

    def __init__(self, delays: Sequence[int], prefix: np.ndarray, columns: int, *, bos: int, pad: int):
        self.delays, self.bos = np.asarray(delays), bos
        known = max(1, prefix.shape[1])  # without a prefix the first column is read as BOS
        self.codes = np.full((len(delays), columns), FREE, np.int32)
        self.codes[:, :known] = pad
        if prefix.shape[1]:
            self.codes[:, :known] = apply_delay(prefix.astype(np.int32), delays, pad)[:, :known]
        self.filled = 0  # columns that the result has

    def read(self, column: int) -> np.ndarray:
        """Return the audio ids of a step, (Q,): BOS in a stream that has not begun, FREE where no code is
        written.
        """
        return np.where(column < self.delays, self.bos, self.codes[:, column])

    def write(self, column: int, codes: np.ndarray) -> None:
        """Write the codes, (Q,), that a step predicts for the next column."""
        self.codes[:, column] = codes
        self.filled = column + 1

    @property
    def frames(self) -> int:
        """Complete frames so far."""
        return max(0, self.filled - int(self.delays.max()))

    def undelayed(self, start: int, stop: int) -> np.ndarray:
        """Return the codes of frames [start, stop). (Q, stop - start) int32."""
        whole = revert_delay(self.codes[:, : stop + int(self.delays.max())], self.delays.tolist())
        return whole[:, start:stop]
