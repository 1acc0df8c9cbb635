"""A text of MetaVoice in the running batch: its sampling, random numbers and layouts of codes.

Codes are interleaved for the first stage, in rows below the text for the second. Plain NumPy versions of the
sampling rules are in tests/tts_core/metavoice/sampling_rules.py.

Source: metavoiceio/metavoice-src, July 2024 (Apache-2.0), its flattened and tilted adapters.
Differs from upstream: codebooks of unequal lengths are cut without a warning; `by_position` is ours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Protocol

import numpy as np

from tts_core.errors import UsageError
from tts_core.metavoice.config import CODEBOOK_SIZE, END_OF_AUDIO, FIRST_STAGE_BOOKS
from tts_core.nn.noise import Noise, NormalNoise
from tts_core.nn.sampling import OFF, Sampler
from tts_core.speaking.rows import TextInputs

LOWEST_TEMPERATURE = 1e-5  # of the fast rule
SECOND_STAGE_STEP = 1 << 32  # step in a text's noise source that its second stage draws from


class SpeechNoise(Noise, NormalNoise, Protocol):
    """Random numbers for one piece of a text: uniform for both stages, normal for multi-band diffusion."""


@dataclass(frozen=True)
class FirstStageSampling:
    """Settings for sampling one token.

    cfg_scale, text_cfg_scale: guidance on speaker and text; 1 turns it off, and saves a row.
    temperature: the fast rule raises it to at least 1e-5, the slow rule rejects less.
    top_p, top_k: None keeps every id; the slow rule allows only one of them.
    rule: which of upstream's two programs to follow.
    """

    cfg_scale: float = 3.0
    text_cfg_scale: float = 1.0
    temperature: float = 1.0
    top_p: float | None = 0.95
    top_k: int | None = None
    rule: Literal["fast", "slow"] = "fast"

    def __post_init__(self) -> None:
        slow = self.rule == "slow"
        for name, least in (("cfg_scale", 1 if slow else 0), ("text_cfg_scale", 1)):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= least):
                raise UsageError(f"{name}: {value} is not a number >= {least}")
        if self.rule not in ("fast", "slow"):
            raise UsageError(f"rule: {self.rule!r} is neither fast nor slow")
        if not slow and self.text_cfg_scale != 1:
            raise UsageError(f"text_cfg_scale: {self.text_cfg_scale} needs the slow rule; leave it at 1")
        coldest = LOWEST_TEMPERATURE if slow else 0
        if not (math.isfinite(self.temperature) and self.temperature >= coldest):
            raise UsageError(f"temperature: {self.temperature} is not a number >= {coldest}")
        if self.top_p is not None and not 0 <= self.top_p <= 1:
            raise UsageError(f"top_p: {self.top_p} is outside [0, 1]")
        if self.top_k is not None and (self.top_k != int(self.top_k) or self.top_k < 1):
            raise UsageError(f"top_k: {self.top_k} is not a whole number >= 1")
        if slow and self.top_p is not None and self.top_k is not None:
            raise UsageError("top_p and top_k: the slow rule takes only one of them; set the other to None")

    @property
    def rows(self) -> int:
        """Rows that the network computes for one text: conditional, without speaker, without text."""
        if self.text_cfg_scale != 1:
            return 3
        return 1 if self.cfg_scale == 1 else 2

    @property
    def greedy(self) -> bool:
        """True if a draw does not depend on its noise, apart from equal logits."""
        return self.top_k == 1 or self.temperature == 0

    @cached_property
    def numbers(self) -> MetaVoiceNumbers:
        """The numbers by which the sampler draws."""
        fast = self.rule == "fast"
        return MetaVoiceNumbers(
            full=self.cfg_scale + self.text_cfg_scale - 1,
            speaker=1 - self.cfg_scale,
            textual=1 - self.text_cfg_scale,
            temperature=0 if self.greedy else max(self.temperature, LOWEST_TEMPERATURE),
            top_k=self.top_k or 0,
            rising_top_p=OFF["rising_top_p"] if self.top_p is None or not fast else 1 - self.top_p,
            first_top_p=OFF["first_top_p"] if self.top_p is None or fast else self.top_p,
        )


@dataclass(frozen=True)
class MetaVoiceNumbers:
    """A text's sampling as its sampler draws.

    full, speaker, textual: factors of the rows of guidance.
    rising_top_p, first_top_p: top-p of the fast rule, and of the slow one.
    """

    full: float
    speaker: float
    textual: float
    temperature: float
    top_k: int
    rising_top_p: float
    first_top_p: float


SAMPLER = Sampler(
    MetaVoiceNumbers, ("three_way_guidance", "temperature", "top_k", "rising_top_p", "first_top_p")
)


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


PADDING = CODEBOOK_SIZE  # second stage: id at positions without a code


def interleave(text: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Build the first stage's sequence: text ids, then for each frame a code of book 0 and one of book 1.

    text: (S,).  codes: (Q, F); only the first two rows are used.  → (S + 2F,) int32.
    """
    books = codes[:FIRST_STAGE_BOOKS] + CODEBOOK_SIZE * np.arange(FIRST_STAGE_BOOKS)[:, None]
    return np.concatenate([text, books.T.ravel()]).astype(np.int32)


def flattened(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Split a first-stage sequence into text ids without the last, and codes. (N,) → (S - 1,), (2, F) int32.

    Ids are sorted by value, not by position: a missing id shifts the pairing after it. The longer book is
    cut to the shorter one.
    """
    books = [ids[(ids // CODEBOOK_SIZE) == book] - book * CODEBOOK_SIZE for book in range(FIRST_STAGE_BOOKS)]
    frames = min(map(len, books))
    codes = np.stack([book[:frames] for book in books])
    return ids[ids > END_OF_AUDIO][:-1].astype(np.int32), codes.astype(np.int32)


def second_stage_rows(text: np.ndarray, codes: np.ndarray, window: int) -> np.ndarray:
    """Build the second stage's input: text and book 0, with book 1 below it, padded or cut to the window.

    text: (S,) ids with the second stage's offset, end of text last.  codes: (2, F).  → (2, window) int32.
    """
    rows = np.full((FIRST_STAGE_BOOKS, max(window, len(text) + codes.shape[1])), PADDING, np.int32)
    rows[0, : len(text)] = text
    rows[:, len(text) : len(text) + codes.shape[1]] = codes[:FIRST_STAGE_BOOKS]
    return rows[:, :window]


def by_position(rows: np.ndarray, text_tokens: int, frames: int) -> np.ndarray:
    """Read codes from the second stage's rows by their positions after the text. (Q, W) → (Q, F) int32.

    frames: the number given to it; those cut off by the window are missing. No row may have padding there.
    """
    codes = np.asarray(rows)[:, text_tokens : text_tokens + frames].astype(np.int32)
    assert (codes < CODEBOOK_SIZE).all(), "padding among codes: predicted ids must be codes at these places"
    return codes


def most_frames(text_tokens: int, first_window: int, second_window: int) -> int:
    """Count the frames that fit in both stages after a text of `text_tokens` ids, end of text included.

    The second stage's sequence ends with one position of padding. 0 or less: the text itself does not fit.
    """
    return min((first_window - text_tokens) // FIRST_STAGE_BOOKS, second_window - 1 - text_tokens)
