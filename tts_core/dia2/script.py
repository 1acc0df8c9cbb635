"""Dia2's reading of a script: words as entries for the state machine, with their tokens.

The house's rules come first, then Dia2's own reading:

[s1], [S1]Hello, Hi.[S2]     tags are capital and stand alone
[S2] first                   kept alone; the original puts [S1] before it
[S3]                         an error: it would be spoken
<break>, [pause:0.5]         Dia2's own breaks, of whole steps: no silence is inserted

Source: nari-labs/dia2@8687268, Apache-2.0.
Differs from upstream: a break whose length is no number is a UsageError that shows it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from tts_core.errors import UsageError
from tts_core.text import breaks
from tts_core.text.checks import check_words

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


_TAG = re.compile(r"\[\s*[Ss]\s*(\d+)\s*\]")
_MARK = re.compile(r"<[^<>]*>|\[[^\[\]]*\]")  # a tag or a break
_SPACE = re.compile(rf"{_MARK.pattern}|[<\[].*|(\s)", re.DOTALL)  # white space outside of marks, whole or not


def read(reader: Reader, text: str) -> list[Entry]:
    """Read a text by the rules above. Raises UsageError; the message never quotes the text."""
    return [*_entries(reader, text, is_first=True)]


def read_exactly(reader: Reader, text: str) -> list[Entry]:
    """Read a text as the original does. Raises UsageError for one without words."""
    check_words("text", _TAG.sub(" ", text))
    return reader.entries(text)


def tagged(text: str) -> str:
    """Put tags in the form that Dia2 reads."""
    return _TAG.sub(lambda found: f" [S{found[1]}] ", text)


def _check_speakers(text: str) -> None:
    """Raise UsageError for a third speaker, with the place of its tag."""
    for found in _TAG.finditer(text):
        if f"[S{found[1]}]" not in SPEAKERS:
            raise UsageError(
                f"text: {found[0]} is not a speaker; use {' and '.join(SPEAKERS)} (at character "
                f"{found.start() + 1})"
            )


def _entries(reader: Reader, text: str, *, is_first: bool) -> Iterator[Entry]:
    paused = breaks.read("text", text)
    _check_speakers(paused.blanked)
    check_words("text", _TAG.sub(" ", paused.blanked))
    yield from _break(reader, paused.silences[0])
    for part, after in zip(paused.parts, paused.silences[1:], strict=True):
        words = tagged(part)
        alone = not is_first or words.split()[:1] == [SPEAKERS[1]]
        yield from reader.continued(words) if alone else reader.entries(words)
        yield from _break(reader, after)
        is_first = False


def _break(reader: Reader, seconds: float) -> Iterator[Entry]:
    frames = round(seconds * reader.frame_rate)
    if frames:
        yield Entry((), "", frames)


class Feed:
    """Text that comes in pieces: entries as soon as their words are whole."""

    def __init__(self, reader: Reader):
        self.reader = reader
        self._rest, self._is_first = "", True

    def add(self, piece: str) -> list[Entry]:
        """Take the next piece; returns the words that it completes. Raises UsageError as `read`."""
        if not isinstance(piece, str):
            raise UsageError(f"text: a piece is {piece!r:.40}, not text")
        self._rest += piece
        return self._read(self._last_space())

    def end(self) -> list[Entry]:
        """Take the end of the text; returns the last entries. Raises UsageError as `read`."""
        entries = self._read(len(self._rest))
        if self._is_first:
            check_words("text", "")
        rest, self._rest = self._rest, ""
        return [*entries, *_break(self.reader, sum(breaks.read("text", rest).silences))]

    def _read(self, stop: int) -> list[Entry]:
        whole, rest = self._rest[:stop], self._rest[stop:]
        if not _has_words(whole):
            return []
        entries = [*_entries(self.reader, whole, is_first=self._is_first)]
        self._rest, self._is_first = rest, False
        return entries

    def _last_space(self) -> int:
        """Return the place after the last white space that ends a word; a mark belongs to the next word."""
        ends = [space.end() for space in _SPACE.finditer(self._rest) if space[1]]
        while ends and _ends_with_mark(self._rest[: ends[-1]]):
            ends.pop()
        return ends[-1] if ends else 0


def _has_words(text: str) -> bool:
    return any(map(str.isalnum, _MARK.sub(" ", text)))


def _ends_with_mark(text: str) -> bool:
    return text.rstrip().endswith((">", "]"))
