"""Ends of turns in the sound of a dialogue."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts_core.audio.delivery import Delivery, Pacing
from tts_core.audio.turn_ends import STEPS, Levels, turn_ends
from tts_core.text.duration import expected_seconds

RATE = 8000
TURNS = ("[S1] Good morning to you all.", "[S2] Oh, yes. It is a very fine day.", "[S1] So it is.")


def voiced(seconds: float) -> np.ndarray:
    return (0.3 * np.sin(np.arange(round(seconds * RATE)) * 0.2)).astype(np.float32)


def dialogue(pauses: list[float], pace: list[float]) -> tuple[np.ndarray, list[float]]:
    """Sound of TURNS, each at its pace, with pauses between them; and the middles of the pauses."""
    parts, middles, now = [voiced(0)], [], 0.0
    for place, turn in enumerate(TURNS):
        seconds = pace[place] * expected_seconds(turn[5:])
        parts.append(voiced(seconds))
        now += len(parts[-1]) / RATE
        if place < len(TURNS) - 1:
            parts.append(np.zeros(round(pauses[place] * RATE), np.float32))
            middles.append(now + pauses[place] / 2)
            now += len(parts[-1]) / RATE
    return np.concatenate(parts), middles


def levels(sound: np.ndarray) -> np.ndarray:
    made = Levels(RATE)
    made.add(sound)
    return made.decibels()


@given(
    st.lists(st.floats(0.06, 0.6), min_size=2, max_size=2),
    st.lists(st.floats(0.8, 1.25), min_size=3, max_size=3),
)
def test_turns_end_in_the_middle_of_their_pauses(pauses: list[float], pace: list[float]) -> None:
    sound, middles = dialogue(pauses, pace)
    assert turn_ends(TURNS, levels(sound)) == pytest.approx(middles, abs=2 / STEPS)


def test_without_pauses_the_texts_decide() -> None:
    ends = turn_ends(TURNS, levels(voiced(5.0)))
    sizes = np.array(
        [
            sum(expected_seconds(part) + 0.1 for part in parts)
            for parts in (["Good morning to you all."], ["Oh, yes.", "It is a very fine day."], ["So it is."])
        ]
    )
    assert ends == pytest.approx(5.0 * np.cumsum(sizes)[:-1] / sizes.sum(), abs=2 / STEPS)


@pytest.mark.parametrize(
    "sound", [np.zeros(0, np.float32), np.zeros(30, np.float32), np.zeros(9000, np.float32)]
)
def test_silence_and_hardly_any_sound(sound: np.ndarray) -> None:
    ends = turn_ends(TURNS, levels(sound))
    assert len(ends) == 2
    assert 0 <= ends[0] <= ends[1] <= len(sound) / RATE


@given(st.lists(st.integers(0, 700), max_size=9))
def test_levels_do_not_depend_on_chunks(cuts: list[int]) -> None:
    sound, made = voiced(0.5), Levels(RATE)
    for chunk in np.split(sound, np.clip(np.cumsum(cuts, dtype=int), 0, len(sound))):
        made.add(chunk)
    np.testing.assert_array_equal(made.decibels(), levels(sound))


@pytest.mark.parametrize("chunk", [100_000, 777])
def test_a_piece_of_several_turns_has_a_cue_for_each(chunk: int) -> None:
    """At the speed that was asked for, after the pieces before."""
    sound, middles = dialogue([0.3, 0.2], [1.0, 1.1, 0.9])
    delivery = Delivery(Pacing(("One.", " ".join(TURNS)), (None, 0.5, None), 1.0), RATE)
    delivery.add(voiced(1.0), last_of_piece=True)
    for start in range(0, len(sound), chunk):
        delivery.add(sound[start : start + chunk])
    delivery.finish()
    one, *turns = delivery.cues()
    assert (one.text, one.piece) == ("One.", 0)
    assert [(cue.text, cue.piece) for cue in turns] == [(text, 1) for text in TURNS]
    assert [cue.start for cue in turns] == pytest.approx(
        [1.5, *(1.5 + end for end in middles)], abs=2 / STEPS
    )
    assert [cue.end for cue in turns] == [*(cue.start for cue in turns[1:]), 1.5 + len(sound) / RATE]
