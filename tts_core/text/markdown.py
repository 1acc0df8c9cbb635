"""Plain text of Markdown: headings, links, emphasis and code without their marks.

Lists stay, and so does "#1". Source: CommonMark 0.31, its common parts.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_RULES: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r"(?m)^ {0,3}(?:```|~~~)[^\n]*+$"), ""),
    (
        re.compile(r"(?m)^ {0,3}(?:(?:\*[^\S\n]*+){3,}|(?:_[^\S\n]*+){3,}|(?:-[^\S\n]*+){3,}|=++[^\S\n]*+)$"),
        "\n",
    ),
    (re.compile(r"(?m)^ {0,3}>[^\S\n]?"), ""),
    (
        re.compile(r"(?m)^ {0,3}#{1,6}(?:[^\S\n]++(?P<words>[^\n]*+))?$"),
        lambda match: _heading(match["words"]),
    ),
    (
        re.compile(r"!?\[(?P<words>[^\[\]\n]++)\]\((?=[^()\s]*[./#])[^()\s]++(?:\s\"[^\"\n]*+\")?\)"),
        r"\g<words>",
    ),
    (re.compile(r"(?<![\w*])(\*{1,3})(?=[^\s*])([^*\n]*+)(?<=\S)\1(?![\w*])"), r"\2"),
    (re.compile(r"(?<![\w_])(_{1,3})(?=[^\s_])([^_\n]*+)(?<=\S)\1(?![\w_])"), r"\2"),
    (re.compile(r"(?<!`)`([^`\n]++)`(?!`)"), r"\1"),
)


def plain(text: str) -> str:
    """Return the words of a Markdown text. Takes linear time."""
    for pattern, put in _RULES:
        text = pattern.sub(put, text)
    return text


def _heading(words: str | None) -> str:
    """The words of a heading, without closing marks, as a paragraph."""
    return f"{(words or '').rstrip().rstrip('#').rstrip()}\n"
