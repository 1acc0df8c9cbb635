"""Text that arrives while it is spoken: its pieces, laid out as far as it has come.

It is cut as soon as what follows cannot change the cut. The cuts depend on the text only, not on its
fragments. A text that is no longer than a piece stays whole.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tts_core.audio.delivery import Pacing
from tts_core.qwen3.layout import ROLE, script
from tts_core.qwen3.request import PieceLengths, Qwen3Piece, Qwen3Request, check_text
from tts_core.text import breaks
from tts_core.text.breaks import Paused, has_words
from tts_core.text.checks import check_words
from tts_core.text.sentences import LOOK_BEHIND, SENTENCE, best_stop, stops

_OPEN_MARK = re.compile(r"\[[^\[\]]*+\Z|<(?:[A-Za-z/][^<>]*+)?\Z")  # whose end is still to come


@dataclass(frozen=True)
class ArrivingPiece:
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


class ArrivingText:
    """A text that goes on.

    bounds: of its pieces; None does not cut.
    marks: of pauses are read.
    """

    def __init__(self, bounds: PieceLengths | None, *, marks: bool):
        self.bounds, self.marks, self.is_open = bounds, marks, True
        self.parts: list[ArrivingPiece] = []  # only the last one may grow
        self.lead: float | None = None  # seconds of silence before the first
        self._rest, self._before = "", 0  # text from a piece's start on, and the pieces before it

    def feed(self, text: str | None) -> None:
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
            ArrivingPiece(text, len(text), is_whole=True, silence=silence)
            for text, silence in zip(map(str.rstrip, texts), silences[1:], strict=True)
        ]
        if self.is_open:
            settled = 0 if silences[-1] else self._settled(texts[-1])  # marks after a pause may go before it
            parts[-1] = ArrivingPiece(texts[-1], settled, False, silences[-1])
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
        for stop in self._ends(window):
            if has_words(window[stop:]):
                return stop
        return best_stop(window, self.bounds.most) if len(text) > len(window) else 0

    def _settled(self, text: str) -> int:
        """Count the characters before the first place where the next word may end the piece."""
        return next(iter(self._ends(text)), len(text))

    def _ends(self, text: str) -> list[int]:
        """List the places where a piece may end, after a word."""
        if self.bounds is None:
            return []
        least, most = self.bounds.least, self.bounds.most
        found = [stop for stop, rank in stops(text) if stop >= (least if rank == SENTENCE else most)]
        return [stop for stop in found if has_words(text[:stop])]


class Whole:
    """A text that is given whole, with the interface of `Live`."""

    is_open, lead, can_begin = False, None, True

    def __init__(self, request: Qwen3Request):
        self.pieces, self.begun = request.pieces, 0

    def begin(self) -> Qwen3Piece:
        """Begin the next piece."""
        self.begun += 1
        return self.piece

    @property
    def piece(self) -> Qwen3Piece:
        """The piece under way."""
        return self.pieces[self.begun - 1]

    @property
    def is_followed(self) -> bool:
        """Whether a piece follows the one under way."""
        return self.begun < len(self.pieces)

    def feed(self, text: str | None) -> None:
        """Take no text: it is known."""

    def news(self) -> None:
        """Return None: no ids come."""

    def pacing(self) -> None:
        """Return None: the request has the pacing of all pieces."""


class Live:
    """Text in, pieces out, and the ids that come to the last of them."""

    def __init__(self, request: Qwen3Request):
        self.request = request
        self.arriving = ArrivingText(request.bounds(), marks=not request.options.as_written)
        self.pieces: list[Qwen3Piece] = []  # that have begun
        self._said, self._sent = "", 0  # text of the last one that was laid out, and its trailing ids

    def feed(self, text: str | None) -> None:
        """Take a fragment; None is the end. Raises UsageError for text that cannot be read."""
        self.arriving.feed(text)
        for part in self.arriving.parts[-2:]:
            check_text(self.request.facts, part.text, self.request.options)
        if text is None and not any(has_words(part.text) for part in self.arriving.parts):
            check_words("text", "")

    @property
    def is_open(self) -> bool:
        """True if more text may come."""
        return self.arriving.is_open

    @property
    def lead(self) -> float | None:
        """Seconds of silence before the first piece."""
        return self.arriving.lead

    @property
    def begun(self) -> int:
        """Number of pieces that have begun."""
        return len(self.pieces)

    @property
    def piece(self) -> Qwen3Piece:
        """The piece under way, as far as its text has come."""
        return self.pieces[-1]

    @property
    def can_begin(self) -> bool:
        """True if the first id of the next piece is known. A piece after a recording comes whole."""
        index, parts = len(self.pieces), self.arriving.parts
        if index >= len(parts) or not has_words(parts[index].text):
            return False
        if parts[index].is_whole or self.request.voice.transcript:
            return parts[index].is_whole
        known, encode = self._known(index), self.request.facts.tokenizer.encode
        return bool(known) and len(encode(script(known, more=True))) > ROLE

    def begin(self) -> Qwen3Piece:
        """Begin the next piece."""
        self.pieces.append(self._laid(len(self.pieces)))
        return self.piece

    def news(self) -> tuple[list[int], bool] | None:
        """Return ids that have come to the piece under way, and whether more will; None without any."""
        index, before = len(self.pieces) - 1, self._sent
        if not self.pieces[index].more:
            return None
        piece = self.pieces[index] = self._laid(index)
        new = [*piece.layout.trailing[before:]]
        return (new, piece.more) if new else None

    @property
    def is_followed(self) -> bool | None:
        """Whether a piece follows the one under way; None if the text does not say yet."""
        if any(has_words(part.text) for part in self.arriving.parts[len(self.pieces) :]):
            return True
        return None if self.arriving.is_open else False

    def pacing(self) -> Pacing:
        """Return the text of the piece under way, and the silence after it, once `is_followed` is known."""
        part = self.arriving.parts[len(self.pieces) - 1]
        return Pacing((part.text,), (None, part.silence), self.request.options.speed)

    def _laid(self, index: int) -> Qwen3Piece:
        """Lay out a piece as far as its ids are known."""
        more = not self.arriving.parts[index].is_whole
        self._said = self._known(index)
        piece = self.request.piece(self._said, index, more=more)
        self._sent = len(piece.layout.trailing)
        return piece

    def _known(self, index: int) -> str:
        """Return the part of a piece's text that nothing to come can change."""
        part = self.arriving.parts[index]
        if part.is_whole:
            return part.text
        known = self.request.facts.tokenizer.settled(part.text[: part.settled])
        return max(self._said if index < len(self.pieces) else "", known, key=len)
