"""Expected seconds of a text, and the limit of its speech."""

import logging

import pytest

from tts_core.text.duration import expected_seconds, longest_frames, warn_of_cut


def test_fifteen_characters_a_second_numbers_as_words() -> None:
    assert expected_seconds("a" * 30) == 2
    assert expected_seconds("a" * 29, pauses=1) == 2
    assert expected_seconds("100") == expected_seconds("one hundred")


@pytest.mark.parametrize(
    ("expected", "rate", "frames"), [(0.0, 75, 150), (1.0, 75, 300), (0.41, 100 / 3, 94)]
)
def test_the_limit_is_twice_the_expected_time_and_two_seconds(
    expected: float, rate: float, frames: int
) -> None:
    """The expected time in started frames: 14 of 0.41 s at 33.3 Hz."""
    assert longest_frames(expected, rate) == frames


@pytest.mark.parametrize("text", ["Hello", "Hello,", "Hello. Bye", "Hello.5", ""])
def test_a_cut_is_reported_in_seconds(text: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "tts_core"):
        warn_of_cut(94, 100 / 3, text)
    assert caplog.messages == [
        "speech: did not end within 2.8 s and was cut there; another seed, or a full stop at the end of the "
        "text, may help"
    ]


@pytest.mark.parametrize("text", ["Hello.", "Really?! ", "He said: “Stop!”", "(Hello.)", "Well…", "你好。"])
def test_no_full_stop_is_advised_after_an_end_mark(text: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "tts_core"):
        warn_of_cut(94, 100 / 3, text)
    assert caplog.messages == ["speech: did not end within 2.8 s and was cut there; another seed may help"]
