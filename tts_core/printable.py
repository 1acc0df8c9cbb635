"""Text for terminals and logs: a name out of a file cannot move the cursor, reorder letters or flood."""

from __future__ import annotations

import json
import logging
from typing import Any
from unicodedata import category

LONGEST = 1000  # characters of a line
_TAIL = 300  # of these from the end, where a message says what to do
_HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")  # control, format, surrogate, line and paragraph separators
_NAMED = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}
_CUT = " ... "


def one_line(text: str) -> str:
    """Escape what a terminal would act on, line ends included, and cut the middle out of a long text.

    The result has at most LONGEST characters; applied again, it stays as it is.
    """
    if len(text) > LONGEST:  # escapes only lengthen: what is far inside goes either way
        text = text[:LONGEST] + _CUT + text[-LONGEST:]
    if not text.isprintable():
        text = "".join(_escaped(character) for character in text)
    if len(text) > LONGEST:
        text = text[: LONGEST - _TAIL - len(_CUT)] + _CUT + text[-_TAIL:]
    return text


def lines(text: str) -> str:
    """Make every line of a table or report safe, as `one_line` does; their number stays."""
    return "\n".join(one_line(line) for line in text.split("\n"))


def json_text(value: Any, *, indent: int | None = 2, sort_keys: bool = False) -> str:
    """JSON in printable ASCII. Raises ValueError for NaN and infinity."""
    text = json.dumps(value, indent=indent, sort_keys=sort_keys, allow_nan=False)
    return text.replace("\x7f", "\\u007f")  # the one control character that JSON leaves as it is


class LineFormatter(logging.Formatter):
    """Log records as single safe lines."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record, then make it one line."""
        return one_line(super().format(record))


def _escaped(character: str) -> str:
    if category(character) not in _HIDDEN:
        return character
    number = ord(character)
    if 0xDC80 <= number <= 0xDCFF:  # a byte of a file name that is not UTF-8 (surrogateescape)
        number -= 0xDC00
    if number < 0x100:
        return _NAMED.get(character, f"\\x{number:02x}")
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
