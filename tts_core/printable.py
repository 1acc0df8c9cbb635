"""Safe text for terminals and logs: names from a file cannot move the cursor, reorder letters or flood."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from unicodedata import category

LONGEST = 1000  # characters of a line
_TAIL = 300  # of these from the end, which says what to do
_HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")  # control, format, surrogate, line and paragraph separators
_NAMED = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}
_CUT = " ... "


def one_line(text: str) -> str:
    """Escape characters that a terminal interprets, line ends included, and cut the middle of a long text.

    The result has at most LONGEST characters; applying it again changes nothing.
    """
    if len(text) > LONGEST:  # escapes only lengthen a text, so its middle is cut in any case
        text = text[:LONGEST] + _CUT + text[-LONGEST:]
    if not text.isprintable():
        text = "".join(_escaped(character) for character in text)
    if len(text) > LONGEST:
        text = text[: LONGEST - _TAIL - len(_CUT)] + _CUT + text[-_TAIL:]
    return text


def lines(text: str) -> str:
    """Apply `one_line` to every line of a table or report."""
    return "\n".join(one_line(line) for line in text.split("\n"))


def named(names: Iterable[object]) -> str:
    """List names in order, those that are no plain words in quotes."""
    return ", ".join(name if name.isidentifier() else repr(name) for name in sorted(map(str, names)))


def either(names: Iterable[str]) -> str:
    """List names as a choice: ".wav, .flac or .mp3"."""
    *most, last = names
    return f"{', '.join(most)} or {last}" if most else last


def counted(number: int, noun: str) -> str:
    """Write a number with its noun, whose plural ends in s: "1 tensor", "2 tensors"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def json_text(value: object, *, indent: int | None = 2, sort_keys: bool = False) -> str:
    """Format a value as JSON in printable ASCII. Raises ValueError for NaN and infinity."""
    import json  # rarely needed, and a part of the time of --help

    return json.dumps(value, indent=indent, sort_keys=sort_keys, allow_nan=False)


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
