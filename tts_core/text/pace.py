"""The pace of speech in characters a second, a limit for speech and for transcripts of recordings.

Means of reading aloud: S. Trauzettel-Klosinski, K. Dietz and the IReST Study Group, "Standardized assessment
of reading performance: the new International Reading Speed Texts IReST", Investigative Ophthalmology &
Visual Science 53(9), 2012, in characters a minute. Korean is not among its languages; its characters are
syllables, and 31 adults read 308 ± 23 of them a minute: "The study of speech rate in normal-speaking adults
and children", Speech Sciences (Korea) 9(4), 2002, 93-103. The flags of `generate` need this module before
anything heavy.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from functools import cache

from tts_core.errors import FieldError
from tts_core.printable import counted

CHARACTERS_PER_SECOND = 15  # of English, roughly
_MEANS = {  # characters a minute
    "german": 920,
    "english": 987,
    "french": 998,
    "italian": 950,
    "portuguese": 913,
    "russian": 986,
    "spanish": 1025,
    "chinese": 255,
    "japanese": 357,
    "korean": 308,
}
SYLLABIC = ("chinese", "japanese", "korean")  # whose characters are syllables or words
USUAL = 0.6, 1.4  # of a mean: over two standard deviations of a language's readers, each 7 to 18 % of it
DOUBLED = 2.0
DIGIT = 5  # characters that a digit is read as, about, outside of SYLLABIC
SECONDS_MORE = 2.0  # for breath and silence at the ends of a short text


@cache
def paces(language: str | None) -> tuple[float, float]:
    """Return half the slowest and twice the fastest usual pace in characters a second.

    language: by its English name; None, or an unknown one, is any that is not SYLLABIC.
    """
    means = [mean for name, mean in _MEANS.items() if name not in SYLLABIC]
    if language in _MEANS:
        means = [_MEANS[language]]
    return min(means) * USUAL[0] / DOUBLED / 60, max(means) * USUAL[1] * DOUBLED / 60


def usual_seconds(text: str, language: str | None) -> float:
    """Estimate the seconds of a text read aloud. language: as in `paces`."""
    return sum(1 / (sum(pace) / 2) for pace in _by_sentence(text, language, usual=True))


def longest_seconds(text: str, language: str | None) -> float:
    """Return the most seconds that the speech of a text may last: longer speech has gone astray."""
    return SECONDS_MORE + sum(1 / slowest for slowest, _ in _by_sentence(text, language))


def shortest_seconds(text: str, language: str | None) -> float:
    """Return the least seconds in which a text can be spoken."""
    return sum(1 / fastest for _, fastest in _by_sentence(text, language))


def read_seconds(text: str) -> tuple[float, float]:
    """Return the least and the most seconds of a text, read aloud in the language that suits them best."""
    languages = [None, *_MEANS]
    least = min(shortest_seconds(text, language) for language in languages)
    return least, max(longest_seconds(text, language) for language in languages)


def check_transcript(text: str, seconds: float, language: str | None, where: str) -> None:
    """Raise FieldError unless a transcript can have been spoken in the seconds of its recording."""
    least, most = shortest_seconds(text, language), longest_seconds(text, language)
    if not least <= seconds <= most:
        raise FieldError(
            where,
            f"{seconds:.1f} s do not fit a transcript of {counted(len(text), 'character')}, "
            f"{len(text) / seconds:.1f} per second; read aloud it takes {least:.1f} to {most:.1f} s; give "
            "exactly the words of the recording, or {option}",
            "trust_transcript",
        )


def _by_sentence(text: str, language: str | None, *, usual: bool = False) -> Iterator[tuple[float, float]]:
    """Yield the slowest and fastest pace of each character. usual: not doubled."""
    shrink = DOUBLED if usual else 1.0
    for char in text:
        own = _language(char, language)
        slowest, fastest = paces(own)
        many = 1 / DIGIT if char.isdecimal() and own not in SYLLABIC else 1.0
        yield slowest * shrink * many, fastest / shrink * many


def _language(char: str, language: str | None) -> str | None:
    """Return the language whose pace a character has: its script's, else that of the text."""
    if unicodedata.east_asian_width(char) not in "WF":
        return None if language in SYLLABIC and char.isalpha() else language
    if language in SYLLABIC:
        return language
    name = unicodedata.name(char, "")
    if name.startswith("HANGUL"):
        return "korean"
    return "japanese" if name.startswith(("HIRAGANA", "KATAKANA")) else "chinese"
