"""Whole numbers in words: read back, and beside another library's words."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tts_core.text.numerals import (
    LARGEST,
    MOST_DIGITS,
    ONES,
    TENS,
    cardinal,
    ordinal,
    written_number,
    written_ordinal,
    year,
)

WORTH = {word: value for value, word in enumerate(ONES)} | {
    word: 10 * tens for tens, word in enumerate(TENS) if word
}
SIZES = {"hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}


def value(words: str) -> int:
    """Number of a cardinal, read independently of `cardinal`."""
    total = group = 0
    for word in re.split("[ -]", words):
        if word == "hundred":
            group *= 100
        elif word in SIZES:
            total, group = total + group * SIZES[word], 0
        else:
            group += WORTH[word]
    return total + group


@given(st.integers(0, LARGEST))
@example(0)
@example(999_999)
@example(LARGEST)
def test_cardinals_can_be_read_back(number: int) -> None:
    assert value(cardinal(number)) == number


@pytest.mark.parametrize("number", [-1, LARGEST + 1])
def test_numbers_without_words(number: int) -> None:
    with pytest.raises(ValueError, match="outside"):
        cardinal(number)


# written by num2words 0.5.14 (LGPL-2.1): {number: [cardinal, ordinal, year or null]}
OTHER = json.loads((Path(__file__).parents[2] / "data" / "num2words.json").read_text())


def plain(words: str) -> str:
    """Another library's words without its commas and its "and"."""
    return words.replace(",", "").replace(" and ", " ")


@pytest.mark.parametrize("number", OTHER)
def test_numbers_beside_num2words(number: str) -> None:
    whole, place, when = OTHER[number]
    assert cardinal(int(number)) == plain(whole)
    assert ordinal(int(number)) == plain(place)
    if when is not None:
        assert year(int(number)) == plain(when).replace("oh-", "oh ")


def test_years_and_ordinals_of_words() -> None:
    assert year(1801) == "eighteen oh one"
    assert year(2099) == "twenty ninety-nine"
    assert ordinal(0) == "zeroth"
    assert ordinal(1_000_001) == "one million first"


@pytest.mark.parametrize("length", [MOST_DIGITS, MOST_DIGITS + 1, 5000])
def test_long_numbers_are_read_digit_by_digit(length: int) -> None:
    """Also beyond the digits that Python's int() takes."""
    written = "1" * length
    long = length > MOST_DIGITS
    assert written_number(written) == ("one " * length).strip() if long else cardinal(int(written))
    said = written_ordinal(written)
    assert said == ("one " * (length - 1) + "first" if long else ordinal(int(written)))
