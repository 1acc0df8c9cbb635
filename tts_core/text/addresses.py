"""Addresses, names of files and other words with dots inside: "jane dot doe at example dot com"."""

from __future__ import annotations

import re

from tts_core.text.rewriting import Rule

MARKS = {
    **{".": "dot", "/": "slash", "@": "at", "_": "underscore", "-": "dash", ":": "colon", "=": "equals"},
    **{"?": "question mark", "&": "and", "#": "hash", "%": "percent", "+": "plus", "~": "tilde"},
}


def _address(match: re.Match[str]) -> str:
    words = "".join(f" {MARKS[char]} " if char in MARKS else char for char in match["address"].rstrip("/"))
    return " ".join(words.split())


def _dot(match: re.Match[str]) -> str:
    """Read a dot inside a word; that of a number, or of a sentence without a space after it, stays."""
    before, after = match.string[match.start() - 1], match.string[match.end() : match.end() + 2]
    if before.isdecimal() and after[0].isdecimal():
        return "."
    if not before.isupper() and after[0].isupper() and not after[1:].isupper():
        return "."
    return " dot "


_PART = r"[^\s<>()\[\]{}\"'“”‘’,;!|\\*]"
RULES: list[Rule] = [
    (
        re.compile(
            rf"(?<![\w.@/-])(?:https?://(?=\w)|(?=www\.\w|(?:[\w-]++\.)++[a-z]{{2,}}/\w))"
            rf"(?P<address>{_PART}*[\w/])"
        ),
        _address,
    ),
    (re.compile(r"(?<![\w.+-])(?P<address>[\w.+-]++@\w++(?:[.-]\w++)+)"), _address),
]
# after abbreviations and dates
DOTS: list[Rule] = [
    (
        re.compile(r"(?:(?<=[^\W_]{2})|(?<=\d)|(?<=(?<![\w.])[a-z])(?=\.(?:[a-z]{2}|\d)))\.(?=[^\W_])"),
        _dot,
    ),
    (re.compile(r"(?<![\w.])\.(?=[A-Z]{2}|[a-z])"), lambda match: "dot "),
    (re.compile(r"(?<=\sdot\s)(?:ai|eu|io|uk|us)\b"), lambda match: match[0].upper()),
]
