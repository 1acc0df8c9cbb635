"""Checks of texts for every model."""

from __future__ import annotations

import re
import unicodedata

from tts_core.errors import UsageError

PAGE_MARKS = {ord(mark): " " for mark in "\v\f"}  # vertical tab and form feed, read as spaces
_SPEAKER = re.compile(r"\[\s*[Ss]\s*\d+\s*\]")


def check_words(where: str, text: str) -> None:
    """Raise UsageError for a text without words or with control characters; the message never quotes it.

    where: name of the text in messages.
    """
    check_characters(where, text)
    if not any(char.isalnum() for char in text):
        raise UsageError(f"{where}: there are no words in it; write the words to speak")


def check_text(where: str, text: object) -> None:
    """Raise UsageError unless it is text."""
    if not isinstance(text, str):
        raise UsageError(f"{where}: {text!r:.40} is not text; give a string")


def check_characters(where: str, text: str) -> None:
    """Raise UsageError for a control character, other than white space, or half of a surrogate pair."""
    check_text(where, text)
    for index, char in enumerate(text, start=1):
        if unicodedata.category(char) in ("Cc", "Cs") and char not in "\t\n\r\v\f":
            raise UsageError(
                f"{where}: character {index} is U+{ord(char):04X}, a control character; remove it"
            )


def check_one_speaker(text: str, title: str) -> None:
    """Raise UsageError for a text with Dia's speaker tags. title: of the model, which has one voice."""
    check_text("text", text)
    found = _SPEAKER.search(text)
    if found is not None:
        raise UsageError(
            f"text: {found[0]} at character {found.start() + 1} is a speaker tag of Dia; {title} speaks "
            "with one voice only, the reference's; remove it"
        )
