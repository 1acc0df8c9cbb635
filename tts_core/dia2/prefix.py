"""A voice that Dia2 continues: recordings with their words, as entries and steps of the state machine.

Source: nari-labs/dia2@8687268, Apache-2.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tts_core.dia2.script import SPEAKERS, EncodesText, Entry
from tts_core.text.captions import Word

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
    for place, word in enumerate(words):
        is_last = place == len(words) - 1
        end = word.start if word.end is None else word.end
        tokens = tokenizer.encode(word.text if place else tag + word.text)
        start = max(current + 1, round(word.start * frame_rate))
        current = start + len(tokens)
        following = max(current + 1, round((end if is_last else words[place + 1].start) * frame_rate))
        steps.append(start - 1)
        entries.append(Entry(tuple(tokens), word.text, max(0, following - start - 1)))
    return entries, steps


def join(parts: Sequence[tuple[np.ndarray, Sequence[Entry], Sequence[int]]]) -> Prefix:
    """Join the recordings of one or two speakers: codes (Q, P), entries and steps of each."""
    entries, steps, frames = list[Entry](), set[int](), 0
    for place, (codes, words, starts) in enumerate(parts):
        entries += words
        steps |= {step + (frames if place else FIRST_DELAY) for step in starts}
        frames += codes.shape[1]
    return Prefix(np.concatenate([codes for codes, _, _ in parts], axis=1), tuple(entries), frozenset(steps))
