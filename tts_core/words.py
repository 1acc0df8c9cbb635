"""Whether a text can be spoken at all."""

from __future__ import annotations

import unicodedata

from tts_core.errors import UsageError


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
