"""Replace parts of a text by words, which never touch a letter or digit beside them."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable

Rule = tuple[re.Pattern[str], Callable[[re.Match[str]], str]]


def rewritten(text: str, rules: Iterable[Rule]) -> str:
    """Apply rules in order, with a space where their words would meet a letter or digit."""
    for pattern, say in rules:
        text = _replaced(text, pattern, say)
    return text


def without(text: str, chars: Collection[str]) -> str:
    """Leave characters out, with a space between letters or digits that they separate."""
    if not chars:
        return text
    any_of = f"[{re.escape(''.join(chars))}]"
    text = re.sub(rf"(?<=[^\W_])(?<!{any_of}){any_of}++(?=[^\W_])", " ", text)
    return re.sub(any_of, "", text)


def _replaced(text: str, pattern: re.Pattern[str], say: Callable[[re.Match[str]], str]) -> str:
    parts, offset = [""], 0
    for match in pattern.finditer(text):
        words = say(match)
        if words != match[0]:
            for part in (text[offset : match.start()], words):
                _append(parts, part)
            offset = match.end()
    _append(parts, text[offset:])
    return "".join(parts)


def _append(parts: list[str], part: str) -> None:
    if part:
        parts.append(f" {part}" if parts[-1][-1:].isalnum() and part[0].isalnum() else part)
