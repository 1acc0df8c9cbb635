"""The voice that MARS5 speaks with, read from a prompt and checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from tts_core.codecs.encodec import EncodecConfig
from tts_core.errors import UsageError
from tts_core.mars5.config import ResidualTransformerConfig
from tts_core.mars5.options import Mars5Options
from tts_core.pipeline import PromptLike
from tts_core.prompt import Prompt, checked_codes
from tts_core.text.checks import check_words
from tts_core.text.spoken import spoken


@dataclass(frozen=True)
class Sizes:
    """Sizes of the codec that a voice must match."""

    sample_rate: int  # Hz
    hop_length: int  # samples per frame
    n_codebooks: int
    codebook_size: int

    @classmethod
    def of(cls, codec: EncodecConfig, nar: ResidualTransformerConfig) -> Sizes:
        """Read the sizes from a model's configurations."""
        return cls(codec.sample_rate, codec.hop_length, nar.n_codebooks, codec.codebook_size)

    @property
    def frame_rate(self) -> float:
        """Frames per second."""
        return self.sample_rate / self.hop_length


@dataclass(frozen=True, eq=False)
class Mars5Voice:
    """A checked reference: samples (L,) float32, with any silence before them, or codes (Q, P) int32.

    frames: P.  transcript: of a deep clone, as it is read; None in a shallow one.
    """

    frames: int
    samples: np.ndarray | None = None
    codes: np.ndarray | None = None
    transcript: str | None = None

    def encoded(self, encode: Callable[[np.ndarray], np.ndarray]) -> Mars5Voice:
        """Return the voice as codes. encode: samples (L,) → codes (Q, P) int32."""
        if self.samples is None:
            return self
        codes = encode(self.samples)
        assert codes.shape[1] == self.frames, "the codec encodes a frame per started hop"
        return replace(self, samples=None, codes=codes)


def read_voice(prompt: PromptLike, sizes: Sizes, options: Mars5Options) -> Mars5Voice:
    """Check a prompt. An array is taken as the codes of a voice.

    Raises UsageError for a missing reference, for one that is empty, silent, too short or too long, or has
    samples that are not finite or codes out of range, and for a deep clone without a transcript.
    """
    if prompt is None:
        raise UsageError(
            "prompt: MARS5 needs a reference voice; give 5 to 10 s of speech with --ref-audio, in Python "
            "Prompt.of(audio=...)"
        )
    if isinstance(prompt, str | bytes):
        raise UsageError(f"prompt: {prompt!r:.60} is text; give Prompt.from_file(path, text)")
    given = (prompt if isinstance(prompt, Prompt) else Prompt.of(codes=prompt)).one
    where = given.name
    deep = given.text is not None if options.deep_clone is None else options.deep_clone
    if deep and given.text is None:
        raise UsageError(
            "deep_clone: a deep clone needs the words of the reference; give its transcript, or "
            "deep_clone=False (--ref-text, or --shallow)"
        )
    transcript = given.text if deep else None
    if transcript is not None:
        check_words("transcript", transcript)
        transcript = transcript if options.as_written else as_spoken(transcript)
    samples = given.samples(sizes.sample_rate, where)
    if samples is not None:
        _check_length(len(samples), sizes, options, where)
        samples = np.pad(samples, (int(options.ref_audio_pad * sizes.sample_rate), 0))
        return Mars5Voice(-(-len(samples) // sizes.hop_length), samples=samples, transcript=transcript)
    codes = checked_codes(np.asarray(given.codes), where, books=sizes.n_codebooks, size=sizes.codebook_size)
    _check_length(codes.shape[1] * sizes.hop_length, sizes, options, where)
    return Mars5Voice(codes.shape[1], codes=codes, transcript=transcript)


def as_spoken(text: str) -> str:
    """Spell out numbers and abbreviations, and collapse white space to single spaces."""
    return " ".join(spoken(text).split())


def _check_length(samples: int, sizes: Sizes, options: Mars5Options, where: str) -> None:
    seconds = samples / sizes.sample_rate
    if seconds > options.max_prompt_dur:
        raise UsageError(
            f"{where}: {seconds:.1f} s of reference, the limit is {options.max_prompt_dur:g}; "
            "cut it to 5 to 10 s, or raise max_prompt_dur (--max-prompt-dur)"
        )
