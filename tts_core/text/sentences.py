"""A long text in pieces that a network speaks well: cut behind sentences, else clauses, else words."""

from __future__ import annotations

import re
import unicodedata

from tts_core.errors import UsageError
from tts_core.text.spoken import ANYWHERE, BEFORE_NUMBERS, EITHER, TITLES

CHARACTERS_PER_SECOND = 15  # of English read aloud, roughly

LOOK_BEHIND = 40  # characters behind a place that tell what it is

SENTENCE, CLAUSE, WORD = range(3)  # how good a place is, the best first

_CLOSERS = r"[\"'”’»)\]]*"
_PLACES = re.compile(
    rf"(?P<end>[.!?…]+{_CLOSERS}(?=\s)|[。！？]+{_CLOSERS}\s*)"
    rf"|(?P<clause>[,;:]{_CLOSERS}(?=\s)|\s[-–—](?=\s)|—|[，；：、])"
    r"|(?P<break>\s*\n\s*\n\s*)|(?P<word>(?=\s))"
)
# a full stop behind these does not end a sentence
_SHORT = frozenset(
    word.lower() for word in (*TITLES, *EITHER, *BEFORE_NUMBERS, *(set(ANYWHERE) - {"etc"}), "cf", "al")
)


def split(text: str, most: int) -> list[str]:
    """Pieces of at most `most` characters: as many whole sentences as fit; of one that does not fit, as
    many clauses, else words; a word that does not fit is cut. Joined they are the text, up to white space.

    No place behind an abbreviation or an initial, or inside a number, is the end of a sentence. Pieces have
    no white space at their ends; a text without words has no pieces.
    Raises UsageError where `most` is not positive.
    """
    if most < 1:
        raise UsageError(f"pieces: at most {most} characters; give a positive number")
    rest, pieces = text.strip() if _has_words(text) else "", []
    while len(rest) > most:
        cut = _cut(rest, most)
        pieces.append(rest[:cut].rstrip())
        rest = rest[cut:].lstrip()
    return [piece for piece in (*pieces, rest) if piece]


def _cut(text: str, most: int) -> int:
    """The last of the best places that leave at most `most` characters in front, and something to be said.

    Where nothing in front is to be said, marks go by themselves rather than with a part of a word.
    """
    best: dict[int, int] = {}
    marks = 0
    for place, rank in places(text[: most + LOOK_BEHIND]):
        if 0 < place <= most and _has_words(text[:place]):
            best[rank] = place
        elif place <= most:
            marks = place
    return best[min(best)] if best else marks or most


def places(text: str) -> list[tuple[int, int]]:
    """Where a text may be cut, and how well: (place, SENTENCE, CLAUSE or WORD), in order."""
    found = []
    for match in _PLACES.finditer(text):
        rank = {"end": SENTENCE, "clause": CLAUSE, "break": SENTENCE, "word": WORD}[str(match.lastgroup)]
        if rank == SENTENCE and match["end"] and not _ends(text, match):
            rank = WORD if match["end"].startswith(".") else CLAUSE
        found.append((match.end(), rank))
    return found


def _ends(text: str, match: re.Match[str]) -> bool:
    """Whether a full stop, or another mark, ends a sentence here."""
    behind = text[match.end() :].lstrip("\"'“‘«([ \t\n")
    if behind[:1].islower():
        return False
    before = re.search(r"[\w.]*$", text[: match.start()])
    word = before[0].lower() if before else ""
    if match["end"][0] != ".":
        return True
    initial = len(word) == 1 and word.isalpha() and word != "i"
    return not (word in _SHORT or initial)


def _has_words(text: str) -> bool:
    return any(unicodedata.category(char)[0] in "LN" for char in text)
