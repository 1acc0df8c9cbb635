"""A text whose pieces are spoken at once: its joined sound, its order, its times."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from tts_core.audio.delivery import Delivery, Pacing
from tts_core.results import GenerationResult, Meter
from tts_core.speech.script import Script, line
from tts_core.speech.together import Single

RATE = 1000


@dataclass(frozen=True)
class Request:
    """As much of a model's request as a script reads."""

    pieces: tuple[str, ...]
    pacing: Pacing
    max_frames: int | None = None
    seed: int | None = 7


def asked(*texts: str) -> Request:
    return Request(texts, Pacing(texts, (0.01, *[0.02] * (len(texts) - 1), 0.03), speed=1.5))


def spoken(place: int, *, ids: int, seconds: float) -> GenerationResult:
    meter = Meter(RATE, ("first", "second"))
    meter.stage_seconds.update(first=seconds, second=0.0)
    sound = np.full(200, 0.1 * (place + 1), np.float32)
    codes = np.full((2, 3), place, np.int32)
    return meter.result(sound, codes, seed=1, token_count=ids, peak_bytes=10 * place, finish_reason="stop")


def test_a_text_of_one_piece_is_its_own_request() -> None:
    assert isinstance(line(asked("One."), Meter(RATE)), Single)
    assert isinstance(line(asked("One.", "Two."), Meter(RATE)), Script)


def test_pieces_that_end_in_any_order_are_joined_in_the_texts() -> None:
    text, meter = asked("One.", "Two.", "Three."), Meter(RATE, ("first", "second"))
    script = Script(text, meter)
    for place in (2, 0, 1):
        one = script.request(place)
        assert (one.pieces, one.pacing) == (
            (text.pieces[place],),
            Pacing((text.pieces[place],), (None, None)),
        )
        script.add(place, spoken(place, ids=5 + place, seconds=0.0))
    result, delivery = script.result(), Delivery(text.pacing, RATE)
    expected = delivery.whole([script.spoken[place].audio for place in range(3)])
    np.testing.assert_array_equal(result.audio, expected)
    np.testing.assert_array_equal(result.codes[0], [0, 0, 0, 1, 1, 1, 2, 2, 2])
    assert result.cues == delivery.cues()
    assert (result.seed, result.token_count, result.peak_memory_usage) == (7, 18, 20)
    assert (result.finish_reason, result.is_final_chunk, result.segment_idx) == ("stop", True, 0)


@pytest.mark.parametrize("seconds", [0.0, 1e-4, 1000.0])
def test_stages_share_the_time_that_passed(seconds: float) -> None:
    """The pieces' own times overlap."""
    meter = Meter(RATE, ("first", "second"))
    meter.stage_seconds["second"] = 1e-9  # before the pieces
    script = Script(asked("One.", "Two."), meter)
    for place in range(2):
        script.add(place, spoken(place, ids=1, seconds=seconds))
    meter.started -= 1
    result = script.result()
    assert sum(result.stage_seconds.values()) <= result.processing_time_seconds
    assert result.stage_seconds["first"] == pytest.approx(
        min(2 * seconds, result.processing_time_seconds), abs=2e-6
    )
    assert result.stage_seconds["second"] == pytest.approx(1e-9)


def test_a_limit_of_all_frames_leaves_the_next_piece_the_rest() -> None:
    script = Script(replace(asked("One.", "Two.", "Three."), max_frames=5), Meter(RATE, ("first", "second")))
    assert script.ready([]) == [0]
    assert script.ready([0]) == []
    script.add(0, spoken(0, ids=1, seconds=0.0))
    assert script.ready([]) == [1]
    assert script.request(1).max_frames == 2
