"""The grid of rows that Dia's decoder reads and writes, and a text of Dia in the running batch.

Row 0 is BOS in every channel; frame f of channel c is in row 1 + f + delay[c]. A prompt's frames come
first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from tts_core.dia.config import DiaConfig
from tts_core.dia.options import DiaSampling
from tts_core.nn.noise import Noise
from tts_core.nn.sentinels import Sentinel
from tts_core.speaking.rows import BatchText, TextInputs

FREE = Sentinel.FREE  # a slot that the model fills


class DelayGrid:
    """Rows of one text, filled one at a time by `accept`. Host integers only.

    prompt: (C, P) int32 codes or None.
    max_frames: to generate after the prompt.
    last_channel_free: do not force the channels with the longest delay in their last row before speech, like
    nari-labs/dia@876125e for the longest prompts of a batch (its grid is one row short there). The default
    forces them, like transformers and the training.
    """

    def __init__(
        self,
        config: DiaConfig,
        prompt: np.ndarray | None,
        max_frames: int,
        *,
        last_channel_free: bool = False,
    ):
        self.config, self.max_frames = config, max_frames
        self.delays = np.asarray(config.delay_pattern)
        self.channels = config.decoder_config.num_channels
        self.prompt_frames = 0 if prompt is None else prompt.shape[1]
        self.end = -1  # row of channel 0's EOS
        self.stopped = False  # by the model, not by max_frames
        length = 2 + self.prompt_frames + max_frames + config.longest_delay
        self.rows = np.full((length, self.channels), FREE, dtype=np.int32)
        self.filled = 1 + self.prompt_frames  # rows that need no prediction
        self._force(prompt, last_channel_free)

    def _force(self, prompt: np.ndarray | None, last_channel_free: bool) -> None:
        bos = self.config.bos_token_id
        frames = np.zeros((self.channels, 0), np.int32) if prompt is None else prompt
        delayed = apply_delay(frames, self.config.delay_pattern, bos, FREE)  # (C, P + longest delay)
        if last_channel_free and delayed.shape[1]:
            delayed[self.delays == self.config.longest_delay, -1] = FREE
        self.rows[0] = bos
        self.rows[1 : 1 + delayed.shape[1]] = delayed.T

    @property
    def done(self) -> bool:
        """True once the text has all codes of its last frame."""
        last = len(self.rows) if self.end < 0 else self.end - 1 + self.config.longest_delay
        return self.filled > last

    @property
    def step(self) -> int:
        """Number of rows of the text's own speech before the next row."""
        return self.filled - 1 - self.prompt_frames

    def accept(self, drawn: np.ndarray) -> None:
        """Fill the next row from the ids drawn for it. drawn: (C,)."""
        row, eos = self.filled, self.config.eos_token_id
        if self.end < 0 and row > self.prompt_frames:  # an EOS predicted inside the prompt is ignored
            at_limit = row > self.prompt_frames + self.max_frames
            if at_limit or drawn[0] == eos:
                self.end, self.stopped = row, not at_limit
        if self.end >= 0:
            since = row - self.end
            pad = self.config.pad_token_id
            drawn = np.where(since == self.delays, eos, np.where(since > self.delays, pad, drawn))
        forced = self.rows[row]
        self.rows[row] = np.where(forced == FREE, drawn, forced)
        self.filled += 1

    @property
    def frames(self) -> int:
        """Number of frames of the text's own speech whose codes are all known."""
        known = self.filled - 1 - self.config.longest_delay
        if self.end >= 0:
            known = min(known, self.end - 1)
        return max(0, known - self.prompt_frames)

    def codes(self) -> np.ndarray:
        """Return the speech so far, (C, frames) int32, without delay and prompt."""
        first = 1 + self.prompt_frames
        delayed = self.rows[first : first + self.frames + self.config.longest_delay]
        return revert_delay(delayed.T, self.config.delay_pattern)

    @property
    def finish_reason(self) -> Literal["stop", "length"]:
        """Return "stop" if the model ended the text, "length" if max_frames did."""
        return "stop" if self.stopped else "length"


def apply_delay(codes: np.ndarray, delays: Sequence[int], bos: int, pad: int) -> np.ndarray:
    """Shift each codebook by its delay. (Q, T) → (Q, T + max(delays)) int32.

    `bos` fills the slots before a codebook's first code, `pad` those after its last.
    Raises ValueError if len(delays) != Q.
    Source: nari-labs/dia audio.py@876125e.
    """
    delayed = np.full((len(codes), codes.shape[1] + max(delays)), pad, np.int32)
    for row, code, delay in zip(delayed, codes, delays, strict=True):
        row[:delay] = bos
        row[delay : delay + len(code)] = code
    return delayed


def revert_delay(codes: np.ndarray, delays: Sequence[int]) -> np.ndarray:
    """Undo the per-codebook delay and drop the ragged tail. (Q, T + max(delays)) → (Q, T) int32.

    Raises ValueError if len(delays) != Q.
    Source: nari-labs/dia audio.py@876125e, without its clamp to T-1.
    """
    frames = codes.shape[1] - max(delays)
    return np.stack([row[d : d + frames] for row, d in zip(codes, delays, strict=True)]).astype(np.int32)


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
