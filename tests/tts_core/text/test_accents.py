"""Accented Latin letters as plain ones."""

import sys
import unicodedata

import pytest

from tests.tts_core.growth import MOST, growth
from tts_core.text.accents import plain, without_accents


@pytest.mark.parametrize(
    ("char", "letters"),
    [
        *zip("éèêëàáâãäåìíîïòóôõöùúûüýÿçñ", "eeeeaaaaaaiiiiooooouuuuyycn", strict=True),
        *zip("ÉÀÖÇÑŠŽĘŐẾ", "EAOCNSZEOE", strict=True),
        *zip("ğışłđőűřěůąęćńśźżăâîșțāēīūģķļņ", "gisldoureuaecnszzaaistaeiugkln", strict=True),
        ("ß", "ss"),
        ("æ", "ae"),
        ("Œ", "Oe"),
        ("ø", "o"),
        ("þ", "th"),
        ("ﬁ", "fi"),
    ],
)
def test_accented_letters(char: str, letters: str) -> None:
    assert plain(char) == letters


def test_every_letter_is_plain_or_left_alone() -> None:
    """Of all of Unicode only Latin letters change, and into ASCII letters."""
    for code in range(sys.maxunicode + 1):
        if (letters := plain(chr(code))) is not None:
            assert letters.isascii()
            assert letters.isalpha()
            assert "LATIN" in unicodedata.name(chr(code))


def test_letters_that_are_known_stay() -> None:
    text, found = without_accents("Čafé", lambda char: ord(char) < 256)
    assert (text, found) == ("Cafe".replace("e", "é"), {"Č": "C"})


def test_plain_letters_that_are_not_known_change_nothing() -> None:
    assert without_accents("é", lambda char: char in "abc") == ("é", {})


def test_accents_after_their_letters() -> None:
    assert without_accents("Cafe\u0301 q\u0303 \u0301", str.isascii) == ("Cafe q \u0301", {"é": "e"})
    assert without_accents("и\u0306", str.isascii) == ("й", {})


def test_twice_the_text_takes_twice_the_work() -> None:
    assert growth(lambda count: without_accents("é\u0301東 a" * count, str.isascii), 2000) < MOST
