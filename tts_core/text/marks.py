"""Refuse unclosed and misspelt marks of a text with their place; they would be spoken."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches
from typing import NamedTuple

from tts_core.errors import FieldError

SHOWN = 20  # characters of a mark that a message shows at most
UNCLOSED = "is not closed"
PAUSE, BREAK = "[pause:0.5]", '<break time="0.5s"/>'
_OTHER_WORDS = ("break", "silence", "wait", "rest", "sleep", "pauses")  # for a pause

_NUMBER = r"\s*+[:=]\s*+(?:\.?\d)[\d.,]*+\s*+[a-z]*+"
_OPEN_PAUSE = re.compile(r"\[\s*+pause\s*+(?:[:=]|\.?\d)[^\[\]\n]*+(?P<end>\]?)", re.IGNORECASE)
_OTHER_BRACKETS = re.compile(rf"[({{<]\s*+pause{_NUMBER}\s*+[\])}}>]?", re.IGNORECASE)
_NO_BRACKET = re.compile(rf"(?<![\w\[({{<])pause{_NUMBER}\s*+\]", re.IGNORECASE)
_OTHER_WORD = re.compile(rf"\[\s*+(?P<word>[a-z]{{3,12}}){_NUMBER}\s*+\]?", re.IGNORECASE)
_OPEN_BREAK = re.compile(r"<\s*+/?\s*+break(?![\w:.-])[^<>\n]*+(?P<end>>?)", re.IGNORECASE)
_OTHER_TAG = re.compile(r"<\s*+(?P<name>[a-z]{3,12})(?P<rest>(?:\s[^<>\n]*+|/)?)>", re.IGNORECASE)
_TIME = re.compile(r"\s(?:time|strength)\s*+=", re.IGNORECASE)
_SPEAKER = re.compile(r"\[\s*+s\s*+(?P<number>[1-9])(?:(?=[\s\[])(?!\s*+\])|\Z|[)}>])", re.IGNORECASE)
_OPEN_WORD = re.compile(r"\[\s*+pause(?=\s)[^\[\]\n]*+(?!\])", re.IGNORECASE)
_BARE_SPEAKER = re.compile(r"(?<![\w\[({<])s(?P<number>[1-9])\]", re.IGNORECASE)
_ROUND_SPEAKER = re.compile(
    r"(?:\A|(?<=[.!?…])(?=\s)|(?<!\s)(?=[^\S\n]*+\n))\s*+(?P<mark>\(s(?P<number>[12])\)|\{s[12]\}|<s[12]>)",
    re.IGNORECASE,
)  # spaces are read from their first one only: every newline as a start takes quadratic time
_SPEAKER_BRACKET = re.compile(r"[({<]\s*+s\s*+(?P<number>[1-9])\s*+\]", re.IGNORECASE)


class _Slip(NamedTuple):
    start: int
    stop: int
    what: str
    instead: str


def check_marks(where: str, text: str) -> None:
    """Raise FieldError for the first mark of a pause or a speaker that is not closed or misspelt.

    text: with spaces in place of the marks that are right.  where: its name in messages.
    """
    slip = min(_slips(text), default=None)
    if slip is not None:
        shown = text[slip.start : slip.stop].strip()
        if slip.what == UNCLOSED or len(shown) > SHOWN:
            shown = shown.split()[0]  # the words after it are no part of it
        shown = shown if len(shown) <= SHOWN else f"{shown[:SHOWN]}…"
        at = f"{shown} at character {slip.start + 1}"
        raise FieldError(where, f"{at} {slip.what}; write {slip.instead}")


def _slips(text: str) -> Iterator[_Slip]:
    if "[" in text or "]" in text or "<" in text or "(" in text or "{" in text:
        yield from _pauses(text)
        yield from _breaks(text)
        yield from _speakers(text)


def _pauses(text: str) -> Iterator[_Slip]:
    for found in _OPEN_PAUSE.finditer(text):
        yield _Slip(*found.span(), "cannot be read" if found["end"] else UNCLOSED, PAUSE)
    for found in _OPEN_WORD.finditer(text):
        yield _Slip(*found.span(), UNCLOSED, PAUSE)
    for found in _OTHER_BRACKETS.finditer(text):
        yield _Slip(*found.span(), "is not in square brackets", PAUSE)
    for found in _NO_BRACKET.finditer(text):
        yield _Slip(*found.span(), "has no opening bracket", PAUSE)
    for found in _OTHER_WORD.finditer(text):
        word = found["word"].lower()
        if word != "pause" and (word in _OTHER_WORDS or get_close_matches(word, ["pause"], cutoff=0.75)):
            yield _Slip(*found.span(), "is no mark of a pause", PAUSE)


def _breaks(text: str) -> Iterator[_Slip]:
    for found in _OPEN_BREAK.finditer(text):
        if _TIME.search(found[0]) is None and (found["end"] or text[found.start() + 1].isspace()):
            continue  # "< break>" may be anything
        yield _Slip(*found.span(), "cannot be read" if found["end"] else UNCLOSED, BREAK)
    for found in _OTHER_TAG.finditer(text):
        name, rest = found["name"].lower(), found["rest"]
        is_similar = name == "pause" or get_close_matches(name, ["break"], cutoff=0.75)
        if name != "break" and (_TIME.search(rest) or (is_similar and rest)):
            yield _Slip(*found.span(), "is no tag of a pause", BREAK)


def _speakers(text: str) -> Iterator[_Slip]:
    for found in _SPEAKER.finditer(text):
        yield _Slip(*found.span(), UNCLOSED, f"[S{found['number']}]")
    for found in _BARE_SPEAKER.finditer(text):
        yield _Slip(*found.span(), "has no opening bracket", f"[S{found['number']}]")
    for found in _ROUND_SPEAKER.finditer(text):  # elsewhere it may be a reference
        yield _Slip(*found.span("mark"), "is not in square brackets", f"[S{found['mark'][2]}]")
    for found in _SPEAKER_BRACKET.finditer(text):
        yield _Slip(*found.span(), "has no opening bracket", f"[S{found['number']}]")
