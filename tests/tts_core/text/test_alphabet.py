"""Unknown characters: named with their places, or left out with a warning."""

import logging

import pytest

from tts_core.errors import UsageError
from tts_core.text.alphabet import known_text, unknown_places


def known(char: str) -> bool:
    return char.isascii()


def test_known_text_is_returned_as_it_is(caplog):
    assert known_text("text", "Plain.", known, skip=True) == "Plain."
    assert not caplog.records


def test_places_count_from_one():
    assert unknown_places("äb東ä", known) == {"ä": [1, 4], "東": [3]}


def test_control_characters_are_left_to_others():
    assert known_text("text", "a\0\x85\ud800", known, skip=False) == "a\0\x85\ud800"


def test_refused_with_characters_and_places():
    with pytest.raises(UsageError) as error:
        known_text("text 2", "schön, größer 東\u202e", known, skip=False)
    assert str(error.value) == (
        "text 2: ö (U+00F6) at 4 and 10, ß (U+00DF) at 11, 東 (U+6771) at 15, (U+202E) at 16: the model has "
        "not learned these characters; write them in its alphabet, or leave them out with --skip-unknown "
        "(skip_unknown=True)"
    )


def test_long_lists_are_cut():
    with pytest.raises(UsageError) as error:
        known_text("text", "ä" * 8 + "àáâãåæçèéê", known, skip=False)
    assert "ä (U+00E4) at 1, 2, 3, 4, 5 and 3 more places, à" in str(error.value)
    assert "è (U+00E8) at 16 and 1 more: " not in str(error.value)
    assert " and 1 more: the model" in str(error.value)


def test_skipped_with_a_warning(caplog):
    with caplog.at_level(logging.WARNING, "tts_core"):
        assert known_text("text", "a東b", known, skip=True) == "ab"
    assert caplog.messages == ["text: 東 (U+6771) at 2: left out, the model has not learned these characters"]
