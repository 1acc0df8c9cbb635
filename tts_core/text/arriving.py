"""Cut arriving text into sentences or words, each as soon as later text cannot change it.

Fragments may end anywhere, also inside words and marks. The cuts depend on the text only, not on the
fragments: the text as one fragment gives the same pieces.
"""

from __future__ import annotations

import re
from typing import Protocol

from tts_core.text.breaks import has_words
from tts_core.text.sentences import LOOK_BEHIND, SENTENCE, best_stop, next_word, stops

LEAST = 20  # characters of a piece: models speak a single short word badly
MOST = 180  # about 12 s of speech: a piece of its own, and a voice for those that follow

# tags and pauses, also one whose end is still to come; cuts fall outside
_MARK = re.compile(r"<[A-Za-z/][^<>]*+(?:>|\Z)|\[[^\[\]]*+(?:\]|\Z)")
_SPACE = re.compile(r"\s+")


class Cutter(Protocol):
    """Text in fragments → pieces to speak, which joined are the text up to white space."""

    def add(self, text: str) -> list[str]:
        """Add a fragment; return the pieces that are complete now."""
        ...

    def end(self) -> list[str]:
        """Return the rest. A last piece without words has only marks, such as a pause."""
        ...


class Sentences(Cutter):
    """Pieces of whole sentences, LEAST to MOST characters each; of a longer sentence, clauses, else words.

    The end of a sentence is known with the first letter after it, or with an empty line.
    """

    def __init__(self) -> None:
        self._rest = ""

    def add(self, text: str) -> list[str]:
        """Add text in linear time; return the pieces that are complete."""
        self._rest = (self._rest + text).lstrip()
        pieces, start = [], 0
        while stop := self._stop(start):
            pieces.append(self._rest[start:stop].rstrip())
            space = _SPACE.match(self._rest, stop)
            start = stop if space is None else space.end()
        self._rest = self._rest[start:]
        return pieces

    def end(self) -> list[str]:
        pieces = self.add("")
        while len(self._rest) > MOST:
            stop = best_stop(_plain(self._rest[: MOST + LOOK_BEHIND]), MOST)
            pieces.append(self._rest[:stop].rstrip())
            self._rest = self._rest[stop:].lstrip()
        rest, self._rest = self._rest.rstrip(), ""
        return [*pieces, rest] if rest else pieces

    def _stop(self, start: int) -> int:
        """Return the end of the piece that begins at `start`; 0 if it is not known yet."""
        window = _plain(self._rest[start : start + MOST + LOOK_BEHIND])
        for stop, rank in stops(window):
            if stop > MOST:
                break
            known = window[:stop].endswith("\n") or next_word(window, stop) < len(window)
            if rank == SENTENCE and known and count_spoken(window[:stop]) >= LEAST:
                return start + stop
        return start + best_stop(window, MOST) if len(window) == MOST + LOOK_BEHIND else 0


class Words(Cutter):
    """Pieces of whole words with the white space after them, for a model that reads while it speaks.

    A tag or a pause goes with the word after it.
    """

    def __init__(self) -> None:
        self._rest = ""

    def add(self, text: str) -> list[str]:
        self._rest += text
        plain = _plain(self._rest)
        spaces = _SPACE.finditer(plain)
        stops = [space.end() for space in spaces if not plain[: space.start()].endswith(("]", ">"))]
        if not stops or not count_spoken(plain[: stops[-1]]):
            return []
        piece, self._rest = self._rest[: stops[-1]], self._rest[stops[-1] :]
        return [piece]

    def end(self) -> list[str]:
        rest, self._rest = self._rest, ""
        return [rest] if rest.strip() else []


def _plain(text: str) -> str:
    """Return a text of the same length whose marks have no places for cuts, and look like capital words."""
    return _MARK.sub(_masked, text)


def _masked(mark: re.Match[str]) -> str:
    inside = len(mark[0]) - 1 - mark[0].endswith(("]", ">"))
    return mark[0][0] + "X" * inside + mark[0][1 + inside :]


def count_spoken(text: str) -> int:
    """Count the characters besides tags and pauses; 0 for a text without words."""
    said = _MARK.sub("", text).strip()
    return len(said) if has_words(said) else 0
