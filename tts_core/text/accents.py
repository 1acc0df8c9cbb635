"""Plain letters in place of accented Latin ones: "Café naïve" is read as "Cafe naive"."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from functools import lru_cache

# letters that Unicode does not decompose
_WHOLE = {
    **{
        "ß": "ss",
        "ẞ": "SS",
        "æ": "ae",
        "Æ": "Ae",
        "œ": "oe",
        "Œ": "Oe",
        "ø": "o",
        "Ø": "O",
        "đ": "d",
        "Đ": "D",
    },
    **{"ð": "d", "Ð": "D", "þ": "th", "Þ": "Th", "ł": "l", "Ł": "L", "ħ": "h", "Ħ": "H", "ŧ": "t", "Ŧ": "T"},
    **{"ı": "i", "ŋ": "ng", "Ŋ": "Ng", "ſ": "s", "ƒ": "f", "ə": "e", "Ə": "E"},
}
_MARKS = re.compile("[\u0300-\u036f]+")


@lru_cache(maxsize=4096)
def plain(char: str) -> str | None:
    """Return the plain letters of an accented Latin letter; None for any other character."""
    if char in _WHOLE:
        return _WHOLE[char]
    if char.isascii() or not unicodedata.name(char, "").startswith("LATIN "):
        return None
    letters = _MARKS.sub("", unicodedata.normalize("NFKD", char))
    return letters if letters.isascii() and letters.isalpha() else None


def without_accents(text: str, known: Callable[[str], bool]) -> tuple[str, dict[str, str]]:
    """Replace accented letters that are not known by plain ones that are.

    Returns the text, and the replacements: letter → plain letters, in the order of the text. Accents that
    follow their letter are part of it.
    """
    text = unicodedata.normalize("NFC", text) if _MARKS.search(text) else text
    found: dict[str, str] = {}
    for char in dict.fromkeys(text):
        letters = None if known(char) else plain(char)
        if letters is not None and all(map(known, letters)):
            found[char] = letters
    text = text.translate({ord(char): letters for char, letters in found.items()})
    return _MARKS.sub(lambda marks: "" if _follows_letter(marks) else marks[0], text), found


def _follows_letter(marks: re.Match[str]) -> bool:
    before = marks.string[marks.start() - 1 : marks.start()]
    return before.isascii() and before.isalpha()
