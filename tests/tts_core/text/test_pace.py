"""Paces of reading aloud: what speech may last, and which transcripts fit a recording."""

import pytest

from tts_core.errors import UsageError
from tts_core.text.pace import (
    SECONDS_MORE,
    check_transcript,
    longest_seconds,
    paces,
    shortest_seconds,
    usual_seconds,
)

ENGLISH = "The small river runs slowly past the old mill, and nobody is there to see it."
CHINESE = "春天来了，河水慢慢地流过那座老磨坊。"


def test_limits_are_the_usual_range_doubled_both_ways() -> None:
    slowest, fastest = paces("english")
    assert slowest == pytest.approx(987 / 60 * 0.6 / 2)
    assert fastest == pytest.approx(987 / 60 * 1.4 * 2)
    assert longest_seconds("a" * 100, "english") == pytest.approx(100 / slowest + SECONDS_MORE)
    assert shortest_seconds("a" * 100, "english") == pytest.approx(100 / fastest)


def test_auto_takes_the_widest() -> None:
    each = [
        paces(name) for name in ("german", "english", "french", "italian", "portuguese", "russian", "spanish")
    ]
    assert paces(None) == (min(low for low, _ in each), max(high for _, high in each))


@pytest.mark.parametrize("language", ["chinese", "japanese", "korean", "english", None])
def test_characters_have_the_pace_of_their_script(language: str | None) -> None:
    """Also in a text of another language; their own language's where scripts are shared."""
    chinese = longest_seconds("河", language) - SECONDS_MORE
    assert chinese == pytest.approx(
        1 / paces(language if language in ("japanese", "korean") else "chinese")[0]
    )
    assert longest_seconds("a", language) - SECONDS_MORE < chinese


def test_a_digit_is_read_as_a_word() -> None:
    assert usual_seconds("7", "english") == pytest.approx(usual_seconds("seven", "english"))
    assert usual_seconds("７", "chinese") == pytest.approx(usual_seconds("河", "chinese"))


@pytest.mark.parametrize(
    ("text", "language"), [(ENGLISH, "english"), (ENGLISH, None), (CHINESE, "chinese"), (CHINESE, None)]
)
def test_transcripts_fit_what_can_be_read(text: str, language: str | None) -> None:
    usual = usual_seconds(text, language)
    for seconds in (usual / 2, usual, 2 * usual):
        check_transcript(text, seconds, language, "voice")
    for seconds in (usual / 4, 4 * usual + SECONDS_MORE):
        with pytest.raises(UsageError, match=r"^voice: .* per second; .*or trust_transcript=True$"):
            check_transcript(text, seconds, language, "voice")
