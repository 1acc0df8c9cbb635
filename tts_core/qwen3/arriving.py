"""Text that arrives while it is spoken: cut into pieces, each as soon as what follows cannot change it.

The cuts depend on the text only, not on its fragments. A text that is no longer than a piece stays whole.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tts_core.text import breaks
from tts_core.text.breaks import Paused, has_words
from tts_core.text.sentences import LOOK_BEHIND, SENTENCE, best_place, places

_OPEN_MARK = re.compile(r"\[[^\[\]]*+\Z|<(?:[A-Za-z/][^<>]*+)?\Z")  # whose end is still to come


@dataclass(frozen=True)
class Bounds:
    """Lengths of pieces in characters: to the first end of a sentence from `least` on, or to the first word's
    end from `most` on.
    """

    least: int
    most: int


@dataclass(frozen=True)
class Part:
    """A piece of text as far as it has come.

    text: without white space at its beginning, and in the end also at its end.
    settled: characters that no cut can take from it, as far as it can be said now.
    is_whole: nothing more comes to it.
    silence: seconds after it, where another piece follows; None is the usual pause.
    """

    text: str
    settled: int
    is_whole: bool
    silence: float | None = None


class Arriving:
    """A text that goes on.

    bounds: of its pieces; None does not cut.
    marks: of pauses are read.
    """

    def __init__(self, bounds: Bounds | None, *, marks: bool):
        self.bounds, self.marks, self.is_open = bounds, marks, True
        self.parts: list[Part] = []  # only the last one may grow
        self.lead: float | None = None  # seconds of silence before the first
        self._rest, self._before = "", 0  # text from a piece's start on, and the pieces before it

    def hear(self, text: str | None) -> None:
        """Take a fragment; None is the end. Raises UsageError for marks that cannot be read."""
        self._rest = (self._rest + (text or "")).lstrip()
        self.is_open = text is not None
        seen = self._rest
        if self.is_open and self.marks and (mark := _OPEN_MARK.search(seen)):
            seen = seen[: mark.start()]
        paused = breaks.read("text", seen) if self.marks else Paused.whole(seen)
        texts, silences = paused.cut(self._cut)
        if not self._before:
            self.lead = silences[0]
        parts = [
            Part(one, len(one), is_whole=True, silence=silence)
            for one, silence in zip(map(str.rstrip, texts), silences[1:], strict=True)
        ]
        if self.is_open:
            settled = 0 if silences[-1] else self._settled(texts[-1])  # marks after a pause may go before it
            parts[-1] = Part(texts[-1], settled, False, silences[-1])
        self.parts[self._before :] = parts
        if len(parts) > 1 and seen.endswith(texts[-1]):  # what is cut off is not read again
            self._before += len(parts) - 1
            self._rest = self._rest[len(seen) - len(texts[-1]) :]

    def _cut(self, text: str) -> list[str]:
        pieces, start = [], 0
        while stop := self._stop(text[start:]):
            pieces.append(text[start : start + stop].rstrip())
            start += stop
            while text[start].isspace():
                start += 1
        return [*pieces, text[start:]]

    def _stop(self, text: str) -> int:
        """Return the end of a text's first piece; 0 if it is not known yet, or no word follows it."""
        if self.bounds is None:
            return 0
        window = text[: self.bounds.most + LOOK_BEHIND]
        for place in self._ends(window):
            if has_words(window[place:]):
                return place
        return best_place(window, self.bounds.most) if len(text) > len(window) else 0

    def _settled(self, text: str) -> int:
        """Count the characters before the first place where the next word may end the piece."""
        return next(iter(self._ends(text)), len(text))

    def _ends(self, text: str) -> list[int]:
        """List the places where a piece may end, after a word."""
        if self.bounds is None:
            return []
        least, most = self.bounds.least, self.bounds.most
        found = [place for place, rank in places(text) if place >= (least if rank == SENTENCE else most)]
        return [place for place in found if has_words(text[:place])]
