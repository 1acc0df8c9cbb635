"""Reference speech, from which a model takes a voice."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from tts_core.audio.files import RATES
from tts_core.audio.recordings import SHORTEST, check_recording
from tts_core.errors import UsageError
from tts_core.printable import counted
from tts_core.text.captions import Word as Word

_NUMBERS = (int, float, np.integer, np.floating)


@dataclass(frozen=True, eq=False)
class Reference:
    """One recording of one or more speakers: samples or codec codes, exactly one of them.

    audio: (L,) floating-point samples in [-1, 1], at `sample_rate` (Hz), by default the model's.
    codes: (Q, P) int32.
    text: transcript in the model's notation; None for a model that uses only the voice.
    words: with their times, for a model that reads them.
    name: in messages.
    """

    audio: np.ndarray | None = None
    text: str | None = None
    codes: np.ndarray | None = None
    sample_rate: int | None = None
    words: tuple[Word, ...] = ()
    name: str = "prompt"

    def __post_init__(self) -> None:
        rate, (low, high) = self.sample_rate, RATES
        if rate is not None and not (isinstance(rate, _NUMBERS) and low <= rate <= high):
            raise UsageError(f"{self.name}: sample_rate {rate!r:.40} is not a rate of {low} to {high} Hz")
        if self.text is not None and not isinstance(self.text, str):
            raise UsageError(f"{self.name}: its transcript, {self.text!r:.40}, is not text")
        if (self.audio is None) == (self.codes is None):
            raise UsageError("prompt: give audio or codes, exactly one of them")

    def samples(
        self,
        sample_rate: int,
        where: str = "prompt",
        *,
        shortest: float = SHORTEST,
        quality: Literal["HQ", "VHQ"] = "VHQ",
    ) -> np.ndarray | None:
        """Check its audio and resample it to a model's rate: (L,) float32; None if it has codes.

        where: its name in messages.
        shortest: seconds.
        quality: of resampling.
        Raises UsageError unless it is one channel of finite floating-point samples, and as `check_recording`.
        """
        if self.audio is None:
            return None
        samples = np.asarray(self.audio)
        if samples.dtype.kind != "f":  # 16-bit samples would be 32,768 times too loud
            raise UsageError(f"{where}: audio must be floating-point samples in [-1, 1]")
        if samples.ndim != 1 or len(samples) == 0 or not np.isfinite(samples).all():
            raise UsageError(f"{where}: audio must be a non-empty 1-D array of finite samples")
        check_recording(samples, self.sample_rate or sample_rate, self.text, where, shortest=shortest)
        samples = samples.astype(np.float32)
        if self.sample_rate is None or self.sample_rate == sample_rate:
            return samples
        from tts_core.audio.files import resample

        return resample(samples, self.sample_rate, sample_rate, quality=quality)

    def __repr__(self) -> str:
        what = (
            f"codes {np.shape(np.asarray(self.codes))}"
            if self.audio is None
            else f"{counted(len(self.audio), 'sample')}"
        )
        return f"Reference({what}, text={self.text!r})"


@dataclass(frozen=True, eq=False)
class Prompt:
    """The voices of a generation: one or more references; a model's limit is in its spec."""

    references: tuple[Reference, ...] = field(default_factory=tuple)

    def __post_init__(self) -> None:
        if not self.references or not all(isinstance(reference, Reference) for reference in self.references):
            raise UsageError("prompt: give one Reference or more, as Prompt.of(audio=..., text=...)")

    @classmethod
    def of(
        cls,
        audio: np.ndarray | None = None,
        text: str | None = None,
        *,
        codes: np.ndarray | None = None,
        sample_rate: int | None = None,
        words: Sequence[Word] = (),
    ) -> Prompt:
        """Build a prompt of one reference; arguments as in `Reference`."""
        return cls((Reference(audio, text, codes, sample_rate, tuple(words)),))

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], text: str | None = None) -> Prompt:
        """Read a prompt of one recording from a sound file; it is resampled to the model's rate when used.

        Raises as `tts_core.audio.files.read_audio`.
        """
        from tts_core.audio.files import read_audio_at_its_rate

        samples, rate = read_audio_at_its_rate(path)
        return cls.of(samples, text, sample_rate=rate)

    @property
    def one(self) -> Reference:
        """The only reference of the prompt. Raises UsageError if it has several."""
        if len(self.references) != 1:
            raise UsageError(f"prompt: {len(self.references)} references; this model takes one")
        return self.references[0]

    def __repr__(self) -> str:
        return f"Prompt({', '.join(map(repr, self.references))})"


def checked_codes(
    codes: np.ndarray, where: str, *, books: int, size: int, may_be_empty: bool = False
) -> np.ndarray:
    """Return a recording's codes, (Q, P), as int32. Raises UsageError unless they are Q = `books` rows of
    numbers below `size`.

    where: name in messages.
    """
    if codes.ndim != 2 or codes.shape[0] != books or not (codes.shape[1] or may_be_empty):
        raise UsageError(f"{where}: codes of shape {codes.shape}; expected ({books}, frames)")
    if codes.dtype.kind not in "iu":
        raise UsageError(f"{where}: codes of type {codes.dtype}; give whole numbers")
    if codes.size and not (codes.min() >= 0 and codes.max() < size):
        raise UsageError(f"{where}: codes outside 0 .. {size - 1}")
    return codes.astype(np.int32)
