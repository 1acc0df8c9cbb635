"""A caller's end of a request, without an engine."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tts_core.serving.talkers import RATE, SAMPLES, Said, part
from tts_core.errors import CancelledError, GenerationError
from tts_core.results import Meter
from tts_core.serving.speech import Speech

WORDS = Said(("one", "two", "three"))


def spoken(parts: int, *, ahead: float | None = None) -> tuple[Speech, list[int]]:
    """A speech whose text goes on, some of its parts given; the list grows with every wake."""
    wakes: list[int] = []
    speech = Speech("song", None, more=True, on_part=None, wake=lambda: wakes.append(1), ahead=ahead)
    meter = Meter(RATE)
    for place in range(parts):
        speech.give(part(meter, WORDS, place))
    return speech, wakes


@pytest.mark.parametrize(("ahead", "expected"), [(None, 0), (9.0, 0), (0.3, 1)])
def test_taking_a_part_wakes_the_engine_only_if_text_may_be_read_again(
    ahead: float | None, expected: int
) -> None:
    speech, wakes = spoken(2, ahead=ahead)
    assert speech.get(0) is not None
    assert speech.get(0) is not None
    assert len(wakes) == expected


@pytest.mark.parametrize(("less", "texts"), [(0, ["four"]), (1, [])])
def test_a_listener_may_be_behind_by_exactly_as_much_as_is_read_ahead(less: int, texts: list[str]) -> None:
    speech, _ = spoken(2, ahead=(2 * SAMPLES - less) / RATE)
    speech.feed("four")
    assert speech.take_texts() == texts


@pytest.mark.parametrize(("error", "left"), [(CancelledError("gone"), 0), (GenerationError("choked"), 2)])
def test_parts_are_there_before_an_error_but_not_after_a_cancellation(error: Any, left: int) -> None:
    speech, _ = spoken(2)
    speech.fail(error)
    for _ in range(left):
        assert speech.get(0) is not None
    with pytest.raises(type(error)):
        speech.get(0)
