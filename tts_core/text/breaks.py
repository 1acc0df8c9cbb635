"""Pauses written in a text: [pause:SECONDS], and SSML's <break>. Other SSML is refused by name.

A text is cut at its pauses before any other rule reads it. Each part is spoken by itself, and each pause
becomes silence of exactly its length. "a < b", "<3" and HTML's <b> are not SSML and are spoken.
Source: W3C Speech Synthesis Markup Language 1.1, its elements and section 3.2.3.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tts_core.errors import UsageError
from tts_core.text.checks import PAGE_MARKS, check_text
from tts_core.text.marks import check_marks

LONGEST = 600.0  # seconds of one pause
# SSML gives no lengths for these; they are Azure Speech's
STRENGTHS = {"none": 0.0, "x-weak": 0.25, "weak": 0.5, "medium": 0.75, "strong": 1.0, "x-strong": 1.25}
UNITS = {"s": 1.0, "ms": 0.001}

# fmt: off
ELEMENTS = frozenset((
    "audio", "desc", "emphasis", "lang", "lexicon", "lookup", "mark", "meta", "metadata", "p", "paragraph",
    "phoneme", "prosody", "s", "say-as", "sentence", "speak", "sub", "token", "voice", "w",
))
# fmt: on
VENDORS = ("amazon:", "google:", "mstts:", "ssml:")  # prefixes of extensions
NAMED = 5  # elements that a message lists at most

Silences = tuple[float | None, ...]  # seconds before the first piece and after each; None: the usual pause

# quantifiers are possessive where the search could otherwise go back: time stays linear in the text
_PAUSE = re.compile(r"\[\s*+pause\s*+(?P<length>:[^\[\]]*+)?\]", re.IGNORECASE)
_TAG = re.compile(r"<(?P<end>/?)(?P<name>[A-Za-z][\w:.-]*+)(?P<rest>[^<>]*+)>")
_ATTRIBUTE = re.compile(r"""\s++([\w:-]++)\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s"'=]++))""")
_SECONDS = re.compile(r":\s*+(\d++(?:\.\d*+)?|\.\d++)\s*+", re.ASCII)
_TIME = re.compile(r"\s*+\+?(\d++(?:\.\d*+)?|\.\d++)(s|ms)\s*+", re.ASCII)
_SPEAK = re.compile(r"\s*+(?:<\?xml[^<>]*+>\s*+)?<speak\b", re.IGNORECASE)
_LEADING_MARKS = re.compile(r"\s*+[.,;:!?…]++(?=\s)")


class _Mark(NamedTuple):
    """A pause: its place in the text, and its seconds."""

    start: int
    stop: int
    seconds: float


@dataclass(frozen=True)
class Paused:
    """A text cut at its pauses.

    parts: text between pauses, at least one.
    silences: seconds before the first part and after each; one more than there are parts.
    blanked: the text with spaces in place of its pauses, as long as the text.
    """

    parts: tuple[str, ...]
    silences: tuple[float, ...]
    blanked: str

    @classmethod
    def whole(cls, text: str) -> Paused:
        """A text without pauses."""
        return cls((text,), (0.0, 0.0), text)

    def cut(self, cut: Callable[[str], Iterable[str]]) -> tuple[list[str], Silences]:
        """Cut every part into pieces. Returns all pieces, and the silence before the first and after each:
        None where a part goes on, and at the end where no pause is written.
        """
        pieces: list[str] = []
        silences: list[float | None] = [self.silences[0] or None]
        for part, after in zip(self.parts, self.silences[1:], strict=True):
            own = list(cut(part))
            pieces += own
            silences += [None] * (len(own) - 1)
            silences.append(after or None)
        return pieces, tuple(silences)


def has_words(text: str) -> bool:
    """Decide whether a text has a letter or a digit."""
    return any(map(str.isalnum, text))


def read(where: str, text: str, *, spoken: Callable[[str], bool] = has_words) -> Paused:
    """Cut a text at its pauses; a text without pauses is a single part.

    where: its name in messages.  spoken: whether a model says anything of a part. Of parts that it does not,
    marks go to the part before them, as the full stop of "Hello[pause:1].", anything else, as a speaker's
    tag, to the next. Pauses with nothing spoken between them are added; a pause of 0 s is only a space. Form
    feeds and vertical tabs are spaces.
    Raises UsageError for other SSML, naming it, for a pause that cannot be read or is above LONGEST, and for
    a mark that is not closed or misspelt (tts_core.text.marks).
    """
    check_text(where, text)
    text = text.translate(PAGE_MARKS)
    marks = [*_marks(where, text)]
    if not marks:
        return Paused.whole(text)
    parts: list[list[str]] = []
    silences, pending = [0.0], list[str]()
    for said, seconds in _said(text, marks):
        if spoken(said):
            if parts and (leading := _LEADING_MARKS.match(said)):
                parts[-1].append(leading[0].strip())
                said = said[leading.end() :]
            parts.append([" ".join([*pending, said.strip()])])
            pending = []
            silences.append(0.0)
        elif parts and not has_words(said):
            parts[-1].append(said.strip())
        elif said.strip():
            pending.append(said.strip())
        silences[-1] += seconds
    if pending and parts:
        parts[-1].append(" ".join(["", *pending]))
    texts = tuple(map("".join, parts)) or (" ".join(pending).strip(),)
    return Paused(texts, tuple(silences if parts else [*silences, 0.0]), _blanked(text, marks))


def _said(text: str, marks: list[_Mark]) -> Iterator[tuple[str, float]]:
    """The texts between pauses, and the seconds of silence after each."""
    start, said = 0, ""
    for mark in marks:
        said += text[start : mark.start]
        start = mark.stop
        if mark.seconds:
            yield said, mark.seconds
            said = ""
        else:
            said += " "
    yield said + text[start:], 0.0


def _blanked(text: str, marks: list[_Mark]) -> str:
    made, start = [], 0
    for mark in marks:
        made += [text[start : mark.start], " " * (mark.stop - mark.start)]
        start = mark.stop
    return "".join([*made, text[start:]])


def _marks(where: str, text: str) -> list[_Mark]:
    """The pauses of a text, in order. Raises UsageError for other SSML."""
    marks, others = [], dict[str, int]()
    whole = _SPEAK.match(text)
    if whole is not None:
        others["speak"] = whole.end() - len("<speak") + 1
    for tag in _TAG.finditer(text):
        name = tag["name"].lower()
        if name == "break":
            marks.append(_Mark(tag.start(), tag.end(), _break_seconds(where, tag)))
        elif whole is not None or _is_ssml(tag):
            others.setdefault(name, tag.start() + 1)
    if others:
        raise UsageError(f"{where}: {_listed(others)}; only <break> is understood: leave other tags out")
    for pause in _PAUSE.finditer(text):
        marks.append(_Mark(pause.start(), pause.end(), _pause_seconds(where, pause)))
    marks.sort()
    check_marks(where, _blanked(text, marks))
    return marks


def _is_ssml(tag: re.Match[str]) -> bool:
    """Decide whether a tag has an SSML name; one of a letter needs attributes, as it may be mathematics."""
    name = tag["name"].lower()
    if name.startswith(VENDORS):
        return True
    return name in ELEMENTS and (len(name) > 1 or _attributes(tag["rest"]) is not None)


def _listed(others: dict[str, int]) -> str:
    names = [f"<{name:.30}>" for name in others]
    shown = ", ".join(names[:NAMED]) + (" and more" if len(names) > NAMED else "")
    return f"{shown} {'is' if len(names) == 1 else 'are'} SSML, from character {min(others.values())} on"


def _attributes(rest: str) -> dict[str, str] | None:
    """Read a tag's attributes: name → value; None if they are something else."""
    rest, found, index = rest.removesuffix("/").rstrip(), dict[str, str](), 0
    while index < len(rest):
        attribute = _ATTRIBUTE.match(rest, index)
        if attribute is None or attribute[1] in found:
            return None
        found[attribute[1]] = attribute[2] or attribute[3] or attribute[4] or ""
        index = attribute.end()
    return found


def _break_seconds(where: str, tag: re.Match[str]) -> float:
    """The length of a <break>: its time, else its strength, else a medium one's; 0 for its end tag."""
    given = _attributes(tag["rest"])
    at = f"{where}: <break> at character {tag.start() + 1}"
    if given is None or not given.keys() <= {"time", "strength"} or (tag["end"] and given):
        raise UsageError(f'{at} cannot be read; write <break time="0.5s"/> or <break strength="weak"/>')
    if tag["end"]:
        return 0.0
    strength = given.get("strength", "medium").strip().lower()
    if strength not in STRENGTHS:
        raise UsageError(f"{at} has an unknown strength; use {', '.join(STRENGTHS)}")
    if "time" not in given:
        return STRENGTHS[strength]
    time = _TIME.fullmatch(given["time"].lower())
    if time is None:
        raise UsageError(f'{at} has a time that cannot be read; write time="0.5s" or time="500ms"')
    return _checked(at, float(time[1]) * UNITS[time[2]])


def _pause_seconds(where: str, pause: re.Match[str]) -> float:
    at = f"{where}: [pause] at character {pause.start() + 1}"
    seconds = _SECONDS.fullmatch(pause["length"] or "")
    if seconds is None:
        raise UsageError(f"{at} has no length in seconds; write [pause:0.5]")
    return _checked(at, float(seconds[1]))


def _checked(at: str, seconds: float) -> float:
    if seconds > LONGEST:
        raise UsageError(f"{at} is {seconds:g} s long; a pause is {LONGEST:g} s at most")
    return seconds
