"""Characters that a network has not learned: found, and refused or reported."""

from __future__ import annotations

import logging
import unicodedata
from collections.abc import Callable, Mapping

from tts_core.errors import UsageError

NAMED, PLACES = 10, 5  # characters that a message names, and places of each
NOT_LEARNED = "the model has not learned these characters"
_LOG = logging.getLogger("tts_core")


def known_text(
    where: str, text: str, known: Callable[[str], bool], *, skip: bool, why: str = NOT_LEARNED
) -> str:
    """Return the text without unknown characters.

    where: name of the text in messages.  skip: leave them out and log a warning that names them; otherwise
    they are an error.  why: reason for both.
    Raises UsageError with the characters and their places, from 1.
    """
    found = unknown_places(text, known)
    if not found:
        return text
    if not skip:
        raise UsageError(
            f"{where}: {listed(found)}: {why}; write them in its alphabet, or leave them out with "
            "--skip-unknown (skip_unknown=True)"
        )
    _LOG.warning("%s: %s: left out, %s", where, listed(found), why)
    return "".join(char for char in text if char not in found)


def unknown_places(text: str, known: Callable[[str], bool]) -> dict[str, list[int]]:
    """Places, from 1, of every character that is not known, in the order of the text.

    Control characters and halves of surrogate pairs are left to `clean` and `check_words`, which refuse them.
    """
    unknown = {
        char for char in set(text) if not known(char) and unicodedata.category(char) not in ("Cc", "Cs")
    }
    found: dict[str, list[int]] = {}
    if unknown:
        for place, char in enumerate(text, start=1):
            if char in unknown:
                found.setdefault(char, []).append(place)
    return found


def listed(found: Mapping[str, list[int]]) -> str:
    """Name characters with their places: "ä (U+00E4) at 5 and 9, 東 (U+6771) at 12"."""
    named = [f"{_named(char)} at {_joined(places)}" for char, places in list(found.items())[:NAMED]]
    more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
    return ", ".join(named) + more


def _named(char: str) -> str:
    code = f"(U+{ord(char):04X})"
    return f"{char} {code}" if char.isprintable() else code


def _joined(places: list[int]) -> str:
    if len(places) > PLACES:
        return f"{', '.join(map(str, places[:PLACES]))} and {len(places) - PLACES} more places"
    *most, last = map(str, places)
    return f"{', '.join(most)} and {last}" if most else last
