"""Whether a text can be spoken at all."""

from __future__ import annotations

import re
import unicodedata

from tts_core.errors import UsageError

_SPEAKER = re.compile(r"\[S\d+\]")


def check_words(where: str, text: str) -> None:
    """Raise UsageError, which never quotes it, for a text without words or with control characters.

    where: what the message calls the text.
    """
    for place, char in enumerate(text, start=1):
        if unicodedata.category(char) in ("Cc", "Cs") and char not in "\t\n\r":
            raise UsageError(
                f"{where}: character {place} is U+{ord(char):04X}, a control character; remove it"
            )
    if not any(char.isalnum() for char in text):
        raise UsageError(f"{where}: there are no words in it; write what is to be said")


def check_one_speaker(text: str, title: str) -> None:
    """Raise UsageError for a text with Dia's marks of speakers. title: of the model that has one voice."""
    found = _SPEAKER.search(text)
    if found is not None:
        raise UsageError(
            f"text: {found[0]} at character {found.start() + 1} is Dia's mark of a speaker; {title} has the "
            "one voice of the reference and would read it out; leave it out"
        )
