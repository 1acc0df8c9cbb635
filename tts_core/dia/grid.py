"""The grid of rows that Dia's decoder reads and writes: forced slots, ends of texts, complete frames.

Row 0 is BOS in every channel; frame f of channel c is in row 1 + f + delay[c]. A prompt's frames come
first. All texts of a batch share the row number; each starts its own speech after its own prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from tts_core.dia.config import DiaConfig
from tts_core.dia.joining import Joining
from tts_core.dia.sampling import Sampling
from tts_core.nn.noise import Noise

FREE = -1  # a slot that the model fills


class DelayGrid:
    """Rows of a batch, filled one at a time by `accept`. Host integers only.

    prompts: per text (C, P) int32 codes or None.  max_frames: per text, frames to generate after the prompt.
    last_channel_free: for texts with the batch's longest prompt, do not force the channels with the longest
    delay in their last row before speech, like nari-labs/dia@876125e (its grid is one row short there).
    The default forces them, like transformers and the training.
    """

    def __init__(
        self,
        config: DiaConfig,
        prompts: Sequence[np.ndarray | None],
        max_frames: Sequence[int],
        *,
        last_channel_free: bool = False,
    ):
        self.config = config
        self.delays = np.asarray(config.delay_pattern)
        self.channels = config.decoder_config.num_channels
        self.prompt_frames = np.array([0 if prompt is None else prompt.shape[1] for prompt in prompts])
        self.max_frames = np.asarray(max_frames)
        self.ends = np.full(len(prompts), -1)  # row of channel 0's EOS
        self.stopped = np.zeros(len(prompts), dtype=bool)  # by the model, not by max_frames
        longest = int((self.prompt_frames + self.max_frames).max())
        self.rows = np.full(
            (len(prompts), 2 + longest + config.longest_delay, self.channels), FREE, dtype=np.int32
        )
        for item, prompt in enumerate(prompts):
            self._force(item, prompt, last_channel_free)
        self.filled = 1 + int(self.prompt_frames.min())  # rows that need no prediction

    @classmethod
    def joined(cls, config: DiaConfig, text: Joining) -> DelayGrid:
        """Build the grid of one text that joins others; its rows are copied."""
        grid = cls(config, [None], [text.max_frames])
        grid.prompt_frames = np.array([text.prompt_frames])
        grid.rows, grid.filled = text.grid[None].copy(), text.filled
        return grid

    def joining(self, tokens: np.ndarray, sampling: Sampling, noise: Noise) -> Joining:
        """Describe the only text of this grid, for slots. tokens: (S,) int32, with its transcript."""
        [rows], [prompt], [most] = self.rows, self.prompt_frames, self.max_frames
        return Joining(tokens, rows.copy(), self.filled, int(prompt), int(most), sampling, noise)

    def _force(self, item: int, prompt: np.ndarray | None, last_channel_free: bool) -> None:
        bos = self.config.bos_token_id
        frames = np.zeros((self.channels, 0), np.int32) if prompt is None else prompt
        delayed = apply_delay(frames, self.config.delay_pattern, bos, FREE)  # (C, P + longest delay)
        if last_channel_free and frames.shape[1] == self.prompt_frames.max() and delayed.shape[1]:
            delayed[self.delays == self.config.longest_delay, -1] = FREE
        self.rows[item, 0] = bos
        self.rows[item, 1 : 1 + delayed.shape[1]] = delayed.T

    @property
    def done(self) -> bool:
        """True once every text has all codes of its last frame."""
        last = np.where(self.ends < 0, self.rows.shape[1], self.ends - 1 + self.config.longest_delay)
        return bool((self.filled > last).all())

    def steps(self) -> np.ndarray:
        """Count the rows of each text's own speech before the next row; negative inside its prompt. (B,)."""
        return self.filled - 1 - self.prompt_frames

    def accept(self, drawn: np.ndarray) -> None:
        """Fill the next row from the ids drawn for it. drawn: (B, C)."""
        row, eos, pad = self.filled, self.config.eos_token_id, self.config.pad_token_id
        speaking = row > self.prompt_frames
        # ignore an EOS predicted while a longer neighbor's prompt is read; upstream ends that text with no
        # frames
        spoke_eos = speaking & (self.ends < 0) & (drawn[:, 0] == eos)
        at_limit = speaking & (self.ends < 0) & (row > self.prompt_frames + self.max_frames)
        self.stopped |= spoke_eos & ~at_limit
        self.ends = np.where(spoke_eos | at_limit, row, self.ends)
        since_end = np.where(self.ends < 0, -1, row - self.ends)[:, None]  # (B, 1)
        ids = np.where(since_end == self.delays, eos, np.where(since_end > self.delays, pad, drawn))
        self.rows[:, row] = np.where(self.rows[:, row] == FREE, ids, self.rows[:, row])
        self.filled += 1

    def frames(self, item: int) -> int:
        """Count the frames of this text's own speech whose codes are all known."""
        known = self.filled - 1 - self.config.longest_delay - int(self.prompt_frames[item])
        if self.ends[item] >= 0:
            known = min(known, int(self.ends[item]) - 1 - int(self.prompt_frames[item]))
        return max(0, known)

    def codes(self, item: int) -> np.ndarray:
        """Return this text's speech so far, (C, frames) int32, without delay and prompt."""
        first, frames = 1 + int(self.prompt_frames[item]), self.frames(item)
        delayed = self.rows[item, first : first + frames + self.config.longest_delay]
        if frames == 0:
            return np.zeros((self.channels, 0), np.int32)
        return revert_delay(delayed.T, self.config.delay_pattern)

    def finish_reason(self, item: int) -> Literal["stop", "length"]:
        """Return "stop" if the model ended the text, "length" if max_frames did."""
        return "stop" if self.stopped[item] else "length"


def apply_delay(codes: np.ndarray, delays: Sequence[int], bos: int, pad: int) -> np.ndarray:
    """Shift each codebook by its delay. (Q, T) → (Q, T + max(delays)) int32.

    `bos` fills the slots before a codebook's first code, `pad` those after its last.
    Raises ValueError if len(delays) != Q.
    Source: nari-labs/dia audio.py@876125e.
    """
    _check_delays(codes, delays)
    frames = codes.shape[1]
    rows = np.arange(frames + max(delays))
    source = rows[None, :] - np.asarray(delays)[:, None]
    taken = (
        np.take_along_axis(codes, np.clip(source, 0, max(frames - 1, 0)), axis=1)
        if frames
        else np.zeros_like(source)
    )
    return np.where(source < 0, bos, np.where(source >= frames, pad, taken)).astype(np.int32)


def revert_delay(codes: np.ndarray, delays: Sequence[int]) -> np.ndarray:
    """Undo the per-codebook delay and drop the ragged tail. (Q, T + max(delays)) → (Q, T) int32.

    Raises ValueError if len(delays) != Q or codes are shorter than the longest delay.
    Source: nari-labs/dia audio.py@876125e, without its clamp to T-1.
    """
    _check_delays(codes, delays)
    frames = codes.shape[1] - max(delays)
    if frames < 0:
        raise ValueError(f"delay: {codes.shape[1]} rows are fewer than the longest delay {max(delays)}")
    return np.stack([row[d : d + frames] for row, d in zip(codes, delays, strict=True)]).astype(np.int32)


def _check_delays(codes: np.ndarray, delays: Sequence[int]) -> None:
    if codes.ndim != 2 or len(delays) != codes.shape[0]:
        raise ValueError(
            f"delay: {len(delays)} delays for codes of shape {codes.shape}; expected (Q, T) with Q delays"
        )
