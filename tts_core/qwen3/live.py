"""The pieces of a request whose text goes on, laid out as far as the text has come."""

from __future__ import annotations

from tts_core.audio.delivery import Pacing
from tts_core.qwen3.arriving import Arriving
from tts_core.qwen3.layout import ROLE, script
from tts_core.qwen3.request import Piece, Request, check_text
from tts_core.text.breaks import has_words
from tts_core.text.checks import check_words


class Live:
    """Text in, pieces out, and the ids that come to the last of them."""

    def __init__(self, request: Request):
        self.request = request
        self.arriving = Arriving(request.bounds(), marks=not request.options.as_written)
        self.pieces: list[Piece] = []  # that have begun
        self._said, self._sent = "", 0  # text of the last one that was laid out, and its trailing ids

    def hear(self, text: str | None) -> None:
        """Take a fragment; None is the end. Raises UsageError for text that cannot be read."""
        self.arriving.hear(text)
        for part in self.arriving.parts[-2:]:
            check_text(self.request.facts, part.text, self.request.options)
        if text is None and not any(has_words(part.text) for part in self.arriving.parts):
            check_words("text", "")

    @property
    def is_ready(self) -> bool:
        """True if the first id of the next piece is known. A piece after a recording comes whole."""
        place, parts = len(self.pieces), self.arriving.parts
        if place >= len(parts) or not has_words(parts[place].text):
            return False
        if parts[place].is_whole or self.request.voice.transcript:
            return parts[place].is_whole
        known, encode = self._known(place), self.request.facts.tokenizer.encode
        return bool(known) and len(encode(script(known, more=True))) > ROLE

    def begin(self) -> None:
        """Begin the next piece."""
        self.pieces.append(self._laid(len(self.pieces)))

    def news(self) -> tuple[list[int], bool] | None:
        """Return ids that have come to the piece under way, and whether more will; None without any."""
        place, before = len(self.pieces) - 1, self._sent
        if not self.pieces[place].more:
            return None
        piece = self.pieces[place] = self._laid(place)
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

    def _laid(self, place: int) -> Piece:
        """Lay out a piece as far as its ids are known."""
        more = not self.arriving.parts[place].is_whole
        self._said = self._known(place)
        piece = self.request.piece(self._said, place, more=more)
        self._sent = len(piece.layout.trailing)
        return piece

    def _known(self, place: int) -> str:
        """Return the part of a piece's text that nothing to come can change."""
        part = self.arriving.parts[place]
        if part.is_whole:
            return part.text
        known = self.request.facts.tokenizer.settled(part.text[: part.settled])
        return max(self._said if place < len(self.pieces) else "", known, key=len)
