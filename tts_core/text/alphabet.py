"""Characters that a network has not learned: accents are left out, other characters refused or skipped."""

from __future__ import annotations

import logging
import unicodedata
from collections.abc import Callable, Collection, Mapping

from tts_core.errors import FieldError
from tts_core.text.accents import without_accents
from tts_core.text.checks import check_text
from tts_core.text.rewriting import without

NAMED = 8  # characters that a message names
NOT_LEARNED = "the model has not learned"
_LOG = logging.getLogger("tts_core")


def known_text(
    where: str, text: str, known: Callable[[str], bool], *, skip: bool, why: str = NOT_LEARNED
) -> str:
    """Return the text without unknown characters: accented Latin letters as plain ones, no invisible marks.

    where: name of the text in messages.
    skip: leave other characters out and log a warning that names them; otherwise they are an error.
    why: beginning of both messages, before the characters.
    Raises FieldError with the characters.
    """
    check_text(where, text)
    text = "".join(char for char in text if known(char) or not is_invisible(char))
    text, _ = without_accents(text, known)
    found = unknown_characters(text, known)
    if not found:
        return text
    if not skip:
        raise FieldError(
            where,
            f"{why} {listed(found)}; write them in its alphabet, or leave them out with {{option}}",
            "skip_unknown",
        )
    _LOG.warning("%s: left out %s: %s them", where, listed(found), why)
    return without(text, found)


def is_invisible(char: str) -> bool:
    """Return True for a character that only changes the display of others, as a format character."""
    return unicodedata.category(char) == "Cf" or "\ufe00" <= char <= "\ufe0f"


def accent_notes(where: str, text: str, known: Callable[[str], bool]) -> tuple[str, ...]:
    """Build the note about accented letters of a text that are read as plain ones; empty without any."""
    check_text(where, text)
    _, found = without_accents(text, known)
    return (f"{where}: read without accents: {_pairs(found)}",) if found else ()


def unknown_characters(text: str, known: Callable[[str], bool]) -> list[str]:
    """Return every character that is not known, in the order of the text.

    Control characters and halves of surrogate pairs are left to `clean` and `check_words`, which refuse them.
    """
    return [
        char
        for char in dict.fromkeys(text)
        if not known(char) and unicodedata.category(char) not in ("Cc", "Cs")
    ]


def listed(found: Collection[str]) -> str:
    """Name characters: "東 京 (U+202E)", at most NAMED."""
    more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
    return " ".join(map(_named, list(found)[:NAMED])) + more


def _named(char: str) -> str:
    seen = char.isprintable() and not unicodedata.combining(char)
    return char if seen else f"(U+{ord(char):04X})"


def _pairs(found: Mapping[str, str]) -> str:
    more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
    return ", ".join(f"{char} as {letters}" for char, letters in list(found.items())[:NAMED]) + more
