"""Dia2's reading of a script: words as entries for the state machine, with their tokens.

Source: nari-labs/dia2@8687268, Apache-2.0.
Differs from upstream: a break whose length is no number is a UsageError that shows it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from tts_core.errors import UsageError

SPEAKERS = ("[S1]", "[S2]")
# the dot before the fraction is any character, as in upstream
_BREAK = re.compile(r'<break\s+time="([0-9]+(?:.[0-9]*)?)s"\s*/?>')


class Entry(NamedTuple):
    """A word or a break, handed out by the state machine. padding: steps before the next entry, at least."""

    tokens: tuple[int, ...]
    text: str
    padding: int


class EncodesText(Protocol):
    """A tokenizer."""

    @property
    def added(self) -> dict[str, int]:
        """Added tokens and their ids."""
        ...

    def encode(self, text: str) -> list[int]:
        """Encode a text as ids."""
        ...


@dataclass(frozen=True)
class Reader:
    """The reading of scripts. speakers: ids of [S1] and [S2].  frame_rate: Hz."""

    tokenizer: EncodesText
    speakers: tuple[int, int]
    frame_rate: float

    @classmethod
    def of(cls, tokenizer: EncodesText, new_word: int, frame_rate: float) -> Reader:
        """Take the speakers' ids from the tokenizer; `new_word` for one that it lacks."""
        first, second = (tokenizer.added.get(tag, new_word) for tag in SPEAKERS)
        return cls(tokenizer, (first, second), frame_rate)

    def entries(self, script: str | Sequence[str]) -> list[Entry]:
        """Read a script, or its turns, as one line. Raises UsageError for a break of unreadable length."""
        return self.lines([normalized(script)])

    def lines(self, lines: Iterable[str]) -> list[Entry]:
        """Read lines whose speakers alternate, from the first on."""
        announced, found = -1, []
        for number, line in enumerate(lines):
            words, announced = self._line(line, number % 2, announced)
            found += words
        return found

    def continued(self, text: str) -> list[Entry]:
        """Read text that follows other text of the same line."""
        return self._line(text, None, -1)[0]

    def _line(self, line: str, speaker: int | None, announced: int) -> tuple[list[Entry], int]:
        """Read a line; its first word begins with the id of `speaker`, 0 or 1, unless announced last."""
        found, tag, first = [], "", True
        for piece in _pieces(line):
            if not isinstance(piece, str):
                frames = round(piece * self.frame_rate)  # half to even, as in upstream
                found += [Entry((), "", frames)] if frames else []
            elif piece in SPEAKERS:  # the first of equal ids, as in upstream, for a tokenizer without tags
                tag = SPEAKERS[self.speakers.index(self.speakers[SPEAKERS.index(piece)])]
            else:
                tokens = self.tokenizer.encode(f"{tag} {piece}" if tag else piece)
                if first and speaker is not None and announced != speaker:
                    own = [self.speakers[speaker]]
                    tokens = tokens if tokens[:1] == own else own + tokens
                    announced = speaker
                found.append(Entry(tuple(tokens), piece, len(tokens)))
                tag, first = "", False
        return found, announced


def normalized(script: str | Sequence[str]) -> str:
    """Strip a script, or join its stripped turns by line ends."""
    return script.strip() if isinstance(script, str) else "\n".join(turn.strip() for turn in script)


def _pieces(line: str) -> Iterator[str | float]:
    """Yield words, and breaks in seconds."""
    line, start = line.replace("\u2019", "'").replace(":", " "), 0
    for mark in _BREAK.finditer(line):
        yield from line[start : mark.start()].split()
        try:
            yield float(mark[1])
        except ValueError:
            raise UsageError(f'text: {mark[0]!r} has no length in seconds; write time="0.5s"') from None
        start = mark.end()
    yield from line[start:].split()
