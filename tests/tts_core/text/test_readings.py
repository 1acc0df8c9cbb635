"""Readings of the rules that put texts into words: a table of them, and properties of all.

readings.tsv: a text and its reading by the embedded voice, a tab between them; \\n, \\f, \\v and \\uXXXX are
characters.
"""

import re
from itertools import product
from pathlib import Path
from string import punctuation

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.tts_core.text.test_rules import VOICE, said
from tts_core.text import abbreviations, addresses, dates
from tts_core.text.alphabet import known_text
from tts_core.text.numerals import cardinal, ordinal, plural
from tts_core.text.spoken import CURRENCIES, SIZES, UNITS, WORDS, spoken

ESCAPE = re.compile(r"\\u[0-9a-f]{4}|\\[nfv]")
READINGS = dict(
    line.split("\t") for line in Path(__file__).with_name("readings.tsv").read_text("utf-8").splitlines()
)


@pytest.mark.parametrize("written", READINGS)
def test_reading(written: str) -> None:
    text = ESCAPE.sub(lambda found: found[0].encode().decode("unicode_escape"), written)
    assert said(known_text("text", text, VOICE.knows, skip=False)) == READINGS[written]


def words(text: str) -> list[str]:
    return re.findall(r"[^\W\d_½⅛]+", text.lower())


COUNTED = [*range(101), 1000, 10**6, 10**9, 10**12]
# fmt: off
VOCABULARY = {
    word
    for text in (
        *(say(number) for say in (cardinal, ordinal) for number in COUNTED),
        *(plural(say(number)) for say in (cardinal, ordinal) for number in COUNTED),
        "oh o'clock midnight half halves quarter quarters a an and am pm point to by times minus plus about",
        "of the number sharp hashtag dot power per foot feet inch inches minutes meters seconds p m a o",
        *(name for names in CURRENCIES.values() for name in names), *SIZES.values(),
        *UNITS.values(), *WORDS.values(), *(f"{name.split()[0]}s" for name in UNITS.values()),
        *addresses.MARKS.values(), "ai eu io uk us", *dates.MONTHS, *abbreviations.DAYS,
        *abbreviations.TITLES.values(), *abbreviations.AFTER_NAMES.values(), *abbreviations.ANYWHERE.values(),
        *abbreviations.BEFORE_NUMBERS.values(), *map(" ".join, abbreviations.EITHER.values()),
        *VOICE.letters.values(), *VOICE.replacements.values(),
    )
    for word in words(text)
}
# fmt: on

MARKS = sorted({*punctuation, *"–—‐‑−×“”‘’′″´`…•«»|°€£"})
NUMBERS = (0, 5, 12, 30, 99, 100, 555, 2999, 4567, 12345)
JOINED = ".,:/'’′‘´`-"  # decimals, thousands, times, fractions, feet, telephones: words of their own


@pytest.mark.parametrize("mark", MARKS)
def test_a_mark_between_numbers_never_gives_another_number(mark: str) -> None:
    for first, second in product(NUMBERS, NUMBERS):
        text = f"{first}{mark}{second}"
        got, glued = words(said(text)), words(cardinal(int(f"{first}{second}")))
        if first and not (mark == "," and first < 1000 and 100 <= second < 1000):  # 12,345 is one number
            assert got != glued, text
        assert VOCABULARY.issuperset(got), (text, got)
        if mark not in JOINED:
            before, after = words(said(str(first))), words(said(str(second)))
            assert got[: len(before)] == before, (text, got)
            assert [word for word in got if word not in ("dollars", "euros", "pounds")][
                -len(after) :
            ] == after


# fmt: off
FRAGMENTS = (
    *map(str, NUMBERS), *MARKS, *"$€£%½⅛ Q", "1,234", "2.5", "10:30", "3.11.7", "2024-03-14", "US$", "R$",
    "USD", "km", "in", "m", "g", "°C", "mn", "bn", "k", "s", "st", "th", "am", "p.m.", "off", "Feb.", "May",
    "Mon", "Dr.", "St.", "No.", "etc.", "Ph.D.", "U.S.A", "a.b.c", "co.uk", "www.a", "report", "C#", "it´s",
    "\n1. ", "\n- ", "# ",
)
# fmt: on


@given(st.lists(st.sampled_from(FRAGMENTS), max_size=8).map("".join))
@example("50%off US$5mn $20s 5'10\"")
@example("10%-20%Q5kmQ12thQ$5Q")
@example("Q1/2Q9amQ½Q#5Q3.11.7Q1990sQ")
def test_no_letter_is_beside_words_of_the_rules(text: str) -> None:
    """Every word that is read is a word of the rules, or of the text as it is written."""
    written = {*words(text)}
    assert VOCABULARY | written >= {*words(spoken(text))}, spoken(text)
    assert not re.search(r"\d", spoken(text))
