"""The voices of a dialogue whose text arrives in pieces.

Each piece continues the caller's recording, if any, and the first spoken pieces: as many as it takes to hear
every speaker, and for some seconds (as in tts_core.dia.pieces). They are codes with their words.
"""

from __future__ import annotations

import re

import numpy as np

from tts_core.dia.pieces import VOICE, characters
from tts_core.dia.text import TAGS, turns
from tts_core.errors import UsageError
from tts_core.pipeline import PromptLike
from tts_core.prompt import Prompt, Reference
from tts_core.speaking.live import Voices
from tts_core.text import breaks
from tts_core.text.pace import CHARACTERS_PER_SECOND

MOST = 16.0  # seconds of speech that are continued, about half of the window

_TAG = re.compile(r"\s*\[([Ss][12])\]")


class Dialogue(Voices):
    """The voices of Dia.

    shortest_anchor: as in TextRules. Raises UsageError for bare codes.
    """

    def __init__(self, prompt: PromptLike, shortest_anchor: int = 0):
        if prompt is not None and not isinstance(prompt, Prompt):
            raise UsageError(
                "prompt: codes without a transcript continue one text; give Prompt.of(codes=..., text=...)"
            )
        self._given = () if prompt is None else prompt.references
        self._codes: list[np.ndarray] = []
        self._said: list[str] = []
        self._speaker: str | None = None  # of the last words
        self._piece, self._shortest = "", shortest_anchor

    def next(self, text: str) -> tuple[str, PromptLike]:
        """Give a piece its tag, unless it goes on with its prompt's last speaker."""
        tag = _TAG.match(breaks.read("text", text).blanked)
        before = " ".join([*(str(item.text) for item in self._given), *self._said])
        last = turns(before)[-1].speaker or TAGS[0][1:-1] if before else None
        is_first = self._speaker is None
        speaker = tag[1].upper() if tag else self._speaker or last or TAGS[0][1:-1]
        words = text if tag is None else (text[: tag.start(1) - 1] + text[tag.end() :].lstrip()).strip()
        self._piece = f"[{speaker}] {breaks.read('text', words).blanked.strip()}"
        self._speaker = turns(self._piece)[-1].speaker
        if not is_first:
            text = words if speaker == last else f"[{speaker}] {words}"
        return text, self._prompt()

    def spoken(self, codes: np.ndarray) -> None:
        if codes.shape[1] and self._is_needed(self._piece):
            self._codes.append(codes)
            self._said.append(self._piece)

    def _is_needed(self, piece: str) -> bool:
        if characters(piece) < self._shortest:
            return False
        before = [*(str(item.text) for item in self._given), *self._said]
        if not before:
            return True
        said = " ".join(before)
        seconds = characters(said) / CHARACTERS_PER_SECOND
        if seconds + characters(piece) / CHARACTERS_PER_SECOND > MOST:
            return False
        return not _speakers(piece) <= _speakers(said) or (not self._given and seconds < VOICE)

    def _prompt(self) -> PromptLike:
        if not self._said:
            return Prompt(self._given) if self._given else None
        spoken = Reference(codes=np.concatenate(self._codes, axis=1), text=" ".join(self._said))
        return Prompt((*self._given, spoken))


def _speakers(text: str) -> set[str | None]:
    """Speakers of a text; words before the first tag are the first one's."""
    return {turn.speaker or TAGS[0][1:-1] for turn in turns(text) if turn.words}
