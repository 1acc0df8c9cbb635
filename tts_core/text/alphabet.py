"""Characters that a network has not learned: found, refused or left out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from tts_core.errors import UsageError

NAMED, PLACES = 10, 5  # characters that a message names, and places of each
_LOG = logging.getLogger("tts_core")


def without_unknown(where: str, text: str, known: Callable[[str], bool], *, skip: bool) -> str:
    """Return the text with known characters only.

    where: name of the text in messages.  skip: leave the others out and log a warning that names them.
    Raises UsageError, with the characters and their places from 1, for a text with others and skip=False.
    """
    found = unknown_places(text, known)
    if not found:
        return text
    if not skip:
        raise UsageError(
            f"{where}: {listed(found)}: the model has not learned these characters; write them in its "
            "alphabet, or leave them out with --skip-unknown (skip_unknown=True)"
        )
    _LOG.warning("%s: %s: left out, the model has not learned these characters", where, listed(found))
    return "".join(char for char in text if char not in found)


def unknown_places(text: str, known: Callable[[str], bool]) -> dict[str, list[int]]:
    """Places, from 1, of every character that is not known, in the order of the text."""
    unknown = {char for char in set(text) if not known(char)}
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
