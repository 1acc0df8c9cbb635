"""Recordings that Dia2 continues: checked, with the times of their words, as steps of the state machine.

No network runs here.

Source: nari-labs/dia2@8687268, Apache-2.0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tts_core.codecs.mimi import MimiConfig
from tts_core.dia2.config import Dia2Config
from tts_core.dia2.script import SPEAKERS, EncodesText, Entry
from tts_core.errors import UsageError
from tts_core.pipeline import PromptLike
from tts_core.prompt import Prompt, Reference, checked_codes
from tts_core.text.captions import Word
from tts_core.text.checks import check_words

VOICE_SECONDS = 15.0  # of a long text's first piece, whose voices the others continue
MOST_PREFIX = 0.5  # of the context: frames of all recordings together


@dataclass(frozen=True, eq=False)
class Dia2Recording:
    """A checked reference of one speaker: samples (L,) float32, not yet encoded, or codes (Q, P) int32.

    frames: P.  words: with their times.
    """

    frames: int
    words: tuple[Word, ...]
    samples: np.ndarray | None = None
    codes: np.ndarray | None = None

    def encoded(self, encode: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """Return the codes, (Q, P) int32. encode: samples (L,) → codes."""
        return np.asarray(self.codes) if self.samples is None else encode(self.samples)


def longest_prefix(config: Dia2Config) -> int:
    """Count the frames of the longest recordings."""
    return round(MOST_PREFIX * config.max_context_steps)


def longest_voice(config: Dia2Config, frame_rate: float) -> int:
    """Count the frames of the first piece that the others continue, at most. frame_rate: Hz."""
    return min(longest_prefix(config), round(VOICE_SECONDS * frame_rate))


def read_recordings(
    config: Dia2Config, codec: MimiConfig, prompt: PromptLike
) -> tuple[list[Dia2Recording], list[str]]:
    """Check the recordings of one speaker or two; returns them, and remarks for the caller."""
    if prompt is None:
        return [], []
    if not isinstance(prompt, Prompt):
        raise UsageError("prompt: give a Prompt of one recording for each speaker, with its words")
    if len(prompt.references) > len(SPEAKERS):
        raise UsageError(
            f"prompt: {len(prompt.references)} references; this model takes one for each speaker"
        )
    found, notes = [], []
    for speaker, reference in enumerate(prompt.references):
        where = reference.name if len(prompt.references) == 1 else f"{reference.name} {speaker + 1}"
        recording, is_spread = _recording(config, codec, reference, where, speaker)
        found.append(recording)
        if is_spread:
            notes.append(
                f"{where}: its words have no times; they are spread over the recording by their lengths, so "
                "the speech may follow it less closely"
            )
    most = longest_prefix(config)
    if (frames := sum(item.frames for item in found)) > most:
        rate = codec.frame_rate
        raise UsageError(
            f"prompt: {frames / rate:.1f} s of recordings; the model takes {most / rate:.0f} s, "
            "give 5 to 10 s of each speaker"
        )
    return found, notes


def _recording(
    config: Dia2Config, codec: MimiConfig, reference: Reference, where: str, speaker: int
) -> tuple[Dia2Recording, bool]:
    samples = reference.samples(codec.sample_rate, where)
    codes = None
    if samples is None:
        given = np.asarray(reference.codes)
        codes = checked_codes(given, where, books=config.n_streams, size=config.codebook_size)
        frames, seconds = codes.shape[1], codes.shape[1] / codec.frame_rate
    else:
        frames, seconds = -(-len(samples) // codec.hop_length), len(samples) / codec.sample_rate
    if reference.words:
        return Dia2Recording(frames, _timed(reference.words, seconds, where), samples, codes), False
    if reference.text is None:
        raise UsageError(f"{where}: its words are missing; give its transcript, or words with their times")
    return Dia2Recording(frames, spread(_said(reference.text, where, speaker), seconds), samples, codes), True


def _timed(words: Sequence[Word], seconds: float, where: str) -> tuple[Word, ...]:
    """Check times; the last word ends with the recording by default."""
    before = 0.0
    for index, word in enumerate(words, start=1):
        if not word.text.strip() or word.text.split() != [word.text.strip()]:
            raise UsageError(f"{where}: word {index} is not one word")
        if not before <= word.start <= seconds or not math.isfinite(word.start):
            raise UsageError(
                f"{where}: word {index} begins at {word.start:g} s; times must rise, up to {seconds:.2f} s"
            )
        before = word.start
    last = words[-1]
    end = seconds if last.end is None else last.end
    if not last.start <= end:
        raise UsageError(f"{where}: the last word ends at {end:g} s, before it begins")
    return (*words[:-1], last._replace(end=end))


def _said(transcript: str, where: str, speaker: int) -> list[str]:
    """Return the words of a transcript, which may begin with its speaker's tag."""
    check_words(where, transcript)
    words = transcript.split()
    words = words[1:] if words[0].upper() in SPEAKERS else words
    other = next((word for word in words if word.upper() in SPEAKERS), None)
    if other is not None:
        raise UsageError(f"{where}: {other} in its transcript; give a recording for each speaker")
    return words


def spread(words: Sequence[str], seconds: float) -> tuple[Word, ...]:
    """Spread words over a recording by their lengths, a character more for the space after each."""
    total, start, timed = sum(len(word) + 1 for word in words), 0.0, []
    for word in words:
        end = start + seconds * (len(word) + 1) / total
        timed.append(Word(word, start, end))
        start = end
    return tuple(timed)


FIRST_DELAY = 3  # steps by which the first speaker's words come late; the second's do not, as in upstream


@dataclass(frozen=True, eq=False)
class Prefix:
    """The voice that a run continues. codes: (Q, P) int32.  steps: at which a new word is forced."""

    codes: np.ndarray
    entries: tuple[Entry, ...]
    steps: frozenset[int]

    @property
    def frames(self) -> int:
        """Length in frames: P."""
        return self.codes.shape[1]


def align(
    tokenizer: EncodesText, speaker: int, words: Sequence[Word], frame_rate: float
) -> tuple[list[Entry], list[int]]:
    """Turn the words of one recording into entries, and the steps at which they begin.

    speaker: 0 or 1; a tag that the tokenizer lacks is left out.  words: with start and end in seconds; an
    unknown end is the next word's start.
    """
    entries, steps, current = [], [], 0
    tag = f"{SPEAKERS[speaker]} " if SPEAKERS[speaker] in tokenizer.added else ""
    for index, word in enumerate(words):
        is_last = index == len(words) - 1
        end = word.start if word.end is None else word.end
        tokens = tokenizer.encode(word.text if index else tag + word.text)
        start = max(current + 1, round(word.start * frame_rate))
        current = start + len(tokens)
        following = max(current + 1, round((end if is_last else words[index + 1].start) * frame_rate))
        steps.append(start - 1)
        entries.append(Entry(tuple(tokens), word.text, max(0, following - start - 1)))
    return entries, steps


def prefix_of(parts: Sequence[tuple[np.ndarray, Sequence[Entry], Sequence[int]]]) -> Prefix:
    """Join the recordings of one or two speakers: codes (Q, P), entries and steps of each."""
    entries, steps, frames = list[Entry](), set[int](), 0
    for index, (codes, words, starts) in enumerate(parts):
        entries += words
        steps |= {step + (frames if index else FIRST_DELAY) for step in starts}
        frames += codes.shape[1]
    return Prefix(np.concatenate([codes for codes, _, _ in parts], axis=1), tuple(entries), frozenset(steps))
