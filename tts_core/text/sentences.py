"""Cut a long text into pieces: after sentences, otherwise after clauses, otherwise after words."""

from __future__ import annotations

import re
import unicodedata

from tts_core.errors import UsageError
from tts_core.text.abbreviations import LONGEST, is_short

LOOK_BEHIND = 40  # characters after a place that decide its rank

SENTENCE, CLAUSE, WORD = range(3)  # ranks of places, the best first

_CLOSERS = r"[\"'”’»)\]」』）】》〉］〕｝〗〙〛｣]*+"
_OPENERS = re.compile(r"[\"'“‘«(\[「『（【《〈［〔｛〖〘〚｢ \t\n\u3000]*+")
_STOPS = re.compile(
    rf"(?P<end>(?<![.!?…])[.!?…]++{_CLOSERS}(?=\s)|[。！？]++{_CLOSERS}\s*+)"
    rf"|(?P<clause>[,;:]{_CLOSERS}(?=\s)|\s[-–—](?=\s)|—|[，；：、]{_CLOSERS})"
    r"|(?P<space>\s+?(?=\s[-–—]\s|\S|\Z))"
)


def split(text: str, most: int) -> list[str]:
    """Cut a text into pieces of at most `most` characters.

    A piece has as many whole sentences as fit; of one that does not fit, as many clauses, otherwise words; a
    word that does not fit is cut. Joined they are the text, up to white space. No place after an abbreviation
    or an initial, or inside a number, is the end of a sentence. Pieces have no white space at their ends; a
    text without words has no pieces. Takes linear time.
    Raises UsageError if `most` is not positive.
    """
    if most < 1:
        raise UsageError(f"pieces: at most {most} characters; give a positive number")
    text = text.strip()
    if _first_word(text) is None:
        return []
    pieces, start = [], 0
    while len(text) - start > most:
        stop = start + best_stop(text[start : start + most + LOOK_BEHIND], most)
        pieces.append(text[start:stop].rstrip())
        start = stop
        while start < len(text) and text[start].isspace():
            start += 1
    return [piece for piece in (*pieces, text[start:]) if piece]


def best_stop(text: str, most: int) -> int:
    """Return the last of the best places that leave at most `most` characters before them, words among these.

    If there is no word before any place, marks become a piece of their own, without a part of the next word.
    """
    best: dict[int, int] = {}
    marks = 0
    first = _first_word(text)
    for stop, rank in stops(text):
        if first is not None and first < stop <= most:
            best[rank] = stop
        elif stop <= most:
            marks = stop
    return best[min(best)] if best else marks or most


def stops(text: str) -> list[tuple[int, int]]:
    """Places where a text may be cut: (place, SENTENCE, CLAUSE or WORD), in order. Takes linear time."""
    found: list[tuple[int, int]] = []
    for match in _STOPS.finditer(text):
        if match["space"]:
            found += _in_space(match)
        elif match["clause"]:
            found.append((match.end(), CLAUSE))
        elif _ends(text, match):
            found.append((match.end(), SENTENCE))
        else:
            found.append((match.end(), WORD if match["end"].startswith(".") else CLAUSE))
    return found


def next_word(text: str, offset: int) -> int:
    """Return the place after the white space, quotes and brackets that follow `offset`."""
    found = _OPENERS.match(text, offset)
    assert found is not None, "the pattern matches nothing, too"
    return found.end()


def _in_space(match: re.Match[str]) -> list[tuple[int, int]]:
    """The place in white space: a sentence's end at an empty line, otherwise a word's."""
    if match[0].count("\n") > 1:
        return [(match.end(), SENTENCE)]
    return [(match.start(), WORD)]


def _ends(text: str, match: re.Match[str]) -> bool:
    """Decide whether marks end a sentence: not before a small letter or after a short form or list number."""
    following = next_word(text, match.end())
    if text[following : following + 1].islower():
        return False
    if match["end"][0] != ".":
        return True
    word = _word_before(text, match.start())
    if word.isdecimal() and len(word) <= 3:
        start = match.start() - len(word)
        return text[max(0, start - 9) : start].rpartition("\n")[2].strip() != ""
    return not is_short(word, text[following : following + 1])


def _word_before(text: str, offset: int) -> str:
    """The word that ends at `offset`, full stops included; its end if it is long."""
    start = offset
    while start and offset - start <= LONGEST and (text[start - 1].isalnum() or text[start - 1] in "_."):
        start -= 1
    return text[start:offset]


def _first_word(text: str) -> int | None:
    """The place of the first letter or digit; None if there is none."""
    return next((offset for offset, char in enumerate(text) if unicodedata.category(char)[0] in "LN"), None)
