"""Captions of speech with their times, as SubRip or WebVTT.

Sources: W3C WebVTT 1 (cue text, timestamps); SubRip has no standard, its readers take no escapes.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import NamedTuple

from tts_core.audio.files import check_target
from tts_core.errors import ResourceError, UsageError
from tts_core.files.whole import whole_file
from tts_core.text.checks import check_characters

FORMATS = (".srt", ".vtt")
LINE = 42  # characters of a line on the screen, as broadcasters set it
SCREEN = 2  # lines of a cue whose words have times

_UNSEEN = "\u200b"  # a space without width: takes marks apart that a reader would act on
_SRT_MARKS = re.compile(r"(?<=--)(?=>)|(?<=<)(?=[A-Za-z/])|(?<=\{)(?=\\)")
_VTT_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_TURN = re.compile(r"(?<!\A)(?<!\s)\s*(?=\[S\d\])")
_TAG = re.compile(r"\[S\d\]")
_SENTENCE_END = re.compile(r"[.!?…][\"'”’»)]*\Z")


class Word(NamedTuple):
    """A spoken word and its times, in seconds from the start of its recording; end may be unknown."""

    text: str
    start: float
    end: float | None = None


@dataclass(frozen=True)
class Cue:
    """Text from `start` to `end`, in seconds from the start of the speech.

    words: with their times, of models that give them, else none.  piece: place of the piece of the text that
    says it.
    """

    text: str
    start: float
    end: float
    words: tuple[Word, ...] = ()
    piece: int = field(default=0, compare=False)

    def timed(self) -> tuple[Word, ...]:
        """Return its words with ends: a missing one is the next word's start, or the end of the cue."""
        ends = [*(word.start for word in self.words[1:]), self.end]
        return tuple(
            word._replace(end=after if word.end is None else word.end)
            for word, after in zip(self.words, ends, strict=False)
        )


@dataclass(frozen=True)
class Captions:
    """Cues in order; `str` of them for each format, `save` for a file.

    In files each turn of a dialogue has a cue of its own; one whose words have times is cut where it takes
    more than SCREEN lines.
    """

    cues: tuple[Cue, ...]

    def __post_init__(self) -> None:
        for index, cue in enumerate(self.cues, start=1):
            ends = (word.end for word in cue.words if word.end is not None)
            for seconds in (cue.start, cue.end, *(word.start for word in cue.words), *ends):
                if not 0 <= seconds < math.inf:
                    raise UsageError(
                        f"captions: cue {index} has the time {seconds!r:.40}; give seconds from 0 on"
                    )
            for text in (cue.text, *(word.text for word in cue.words)):
                check_characters(f"captions: cue {index}", text)

    def __iter__(self) -> Iterator[Cue]:
        return iter(self.cues)

    def __len__(self) -> int:
        return len(self.cues)

    def srt(self) -> str:
        """SubRip: numbered cues."""
        return "\n".join(
            f"{number}\n{_time(cue.start, ',')} --> {_time(cue.end, ',')}\n{_srt_text(cue)}\n"
            for number, cue in enumerate(self._screens(), start=1)
        )

    def vtt(self) -> str:
        """WebVTT; words with times are marked with their start."""
        blocks = [
            f"{_time(cue.start, '.')} --> {_time(cue.end, '.')}\n{_vtt_text(cue)}\n"
            for cue in self._screens()
        ]
        return "\n".join(["WEBVTT\n", *blocks])

    def _screens(self) -> Iterator[Cue]:
        for cue in self.cues:
            for turn in in_turns(cue):
                yield from _cut(turn)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the format of the suffix, .srt or .vtt, as UTF-8.

        The file appears whole or not at all. Raises as `check_captions`, and ResourceError if the disk is
        full.
        """
        path = check_captions(path)
        text = self.srt() if path.suffix.lower() == ".srt" else self.vtt()
        try:
            with whole_file(path) as file:
                file.write(text.encode())
        except OSError as error:
            raise ResourceError(f"captions: {path} could not be written ({error.strerror})") from error


def turn_texts(text: str) -> list[str]:
    """Cut a text into its turns, each with its tag; a tag without words is left out."""
    return [turn for turn in _TURN.split(text.strip()) if without_tag(turn)]


def without_tag(turn: str) -> str:
    """Return the words of a turn."""
    return _TAG.sub("", turn, count=1).strip()


def in_turns(cue: Cue, ends: Sequence[float] | None = None) -> list[Cue]:
    """Cut a cue into its turns. Each begins with its first word, where words have times.

    ends: seconds at which all turns but the last end, for a cue without words; None: by the lengths of the
    texts.
    """
    turns = turn_texts(cue.text)
    if len(turns) < 2:
        return [cue]
    if cue.words:
        return [*_by_words(cue, turns)]
    if ends is None:
        sizes = [len(without_tag(turn)) for turn in turns]
        seconds = (cue.end - cue.start) / sum(sizes)
        ends = [cue.start + seconds * size for size in accumulate(sizes[:-1])]
    times = pairwise([cue.start, *ends, cue.end])
    return [replace(cue, text=text, start=a, end=b) for text, (a, b) in zip(turns, times, strict=True)]


def _by_words(cue: Cue, turns: Sequence[str]) -> Iterator[Cue]:
    """Cut by the number of words in each turn; turns that were not reached are left out.

    Words that the text lacks are those of a recording before it.
    """
    counts = [len(without_tag(turn).split()) for turn in turns]
    if (more := len(cue.words) - sum(counts)) > 0:
        turns, counts = [" ".join(word.text.strip() for word in cue.words[:more]), *turns], [more, *counts]
    stops = [stop for stop in accumulate(counts, initial=0) if stop < len(cue.words)]
    starts = [cue.start, *(cue.words[stop].start for stop in stops[1:])]
    for text, (first, last), (start, end) in zip(
        turns, pairwise([*stops, len(cue.words)]), pairwise([*starts, cue.end]), strict=False
    ):
        yield replace(cue, text=text, start=start, end=end, words=cue.words[first:last])


def check_captions(path: str | os.PathLike[str]) -> Path:
    """The path of a caption file. Raises UsageError for another suffix, a folder or an unwritable place,
    NotFoundError for a missing folder.
    """
    return check_target("captions", path, FORMATS)


def _time(seconds: float, point: str) -> str:
    """hh:mm:ss and milliseconds."""
    minutes, rest = divmod(_milliseconds(seconds), 60_000)
    return f"{minutes // 60:02}:{minutes % 60:02}:{rest // 1000:02}{point}{rest % 1000:03}"


def _milliseconds(seconds: float) -> int:
    return round(1000 * seconds)


def _lines(text: str) -> str:
    """Wrap a text to lines of LINE characters, or one word if that is longer."""
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > LINE:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".lstrip()
    return "\n".join(lines)


def _said(cue: Cue) -> list[str]:
    """Its words as its text writes them, with the tag of a turn that they begin."""
    said, tag = [], ""
    for part in cue.text.split():
        if _TAG.fullmatch(part):
            tag = f"{part} "
        else:
            said.append(tag + part)
            tag = ""
    return said if len(said) == len(cue.words) else [word.text.strip() for word in cue.words]


def _cut(cue: Cue) -> Iterator[Cue]:
    """Cut a cue whose words have times into screens: after a sentence, else anywhere."""
    if not cue.words:
        yield cue
        return
    said, start = _said(cue), 0
    while start < len(said):
        stop = start + 1
        while stop < len(said) and _lines(" ".join(said[start : stop + 1])).count("\n") < SCREEN:
            stop += 1
        if stop < len(said):
            stop = _best_stop(said, start, stop)
        begin = cue.words[start].start if start else cue.start
        end = cue.words[stop].start if stop < len(said) else cue.end
        yield replace(cue, text=" ".join(said[start:stop]), start=begin, end=end, words=cue.words[start:stop])
        start = stop


def _best_stop(said: Sequence[str], start: int, stop: int) -> int:
    stops = range(stop, start, -1)
    sentences = (stop for stop in stops if _SENTENCE_END.search(said[stop - 1]))
    return next(sentences, None) or stop


def _srt_text(cue: Cue) -> str:
    return _SRT_MARKS.sub(_UNSEEN, _lines(cue.text))


def _vtt_text(cue: Cue) -> str:
    """Words begin with their time, where it is after those before it and inside the cue, as WebVTT asks."""
    if not cue.words:
        return _lines(cue.text).translate(_VTT_ESCAPES)
    said, last = [], _milliseconds(cue.start)
    for word, written in zip(cue.words, _said(cue), strict=True):
        now, text = _milliseconds(word.start), written.translate(_VTT_ESCAPES)
        if last < now < _milliseconds(cue.end):
            text, last = f"<{_time(word.start, '.')}>{text}", now
        said.append(text)
    return " ".join(said)
