"""Dia2 behind the server: words with their times as events, and pieces that are spoken again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("mlx.core", reason="MLX is not installed")

from tests.contract.speakers import source, speaker
from tests.mlx_port.commands.serve.served import Served, recording, served
from tests.mlx_port.commands.serve.spoken import events, pieces_of, sound_of

pytestmark = pytest.mark.rest

TEXT = "[S1] Hello there friend. [S2] Oh, hello! (laughs) I can't wait."


@pytest.fixture(scope="module")
def dia2(tmp_path_factory: pytest.TempPathFactory):
    with served(tmp_path_factory.mktemp("voices"), source("dia2", "mlx")) as found:
        yield found


def alone(text: str) -> Any:
    """What the pipeline says."""
    return speaker("dia2", "mlx").generate(text, seed=5)


def speak(server: Served, text: str, **more: Any) -> list[dict[str, Any]]:
    return events(server.post(input=text, response_format="wav", stream_format="sse", **more))


def test_words_are_events_with_their_times(dia2: Served) -> None:
    """Before the sound in which they begin; a turn's piece has its own, with ends."""
    found = speak(dia2, TEXT, seed=5, pieces=True)
    words = [event for event in found if event["type"] == "speech.audio.word"]
    expected = alone(TEXT)
    assert [(one["text"], one["start"]) for one in words] == [(one.text, one.start) for one in expected.words]
    first = next(place for place, event in enumerate(found) if event["type"] == "speech.audio.delta")
    assert found.index(words[-1]) > first  # not all at once
    turns = pieces_of(found)
    assert len(turns) == 2
    said = [word for turn in turns for word in turn["words"]]
    assert [word["text"] for word in said] == [word["text"] for word in words]
    assert all(word["end"] >= word["start"] for word in said)
    assert len(sound_of(found)) == len(expected.audio)


LONG = "[S1] " + "Hello there friend. Oh, hello! I can't wait. " * 6  # a turn in several pieces


def test_pieces_are_spoken_again_with_a_recording(dia2: Served) -> None:
    """The same sound with the piece's own seed; without a recording only the whole text has its voice."""
    found = pieces_of(speak(dia2, LONG, seed=5, pieces=True))
    assert len(found) > 1
    assert [piece["again"] for piece in found] == [None] * len(found)
    dia2.service.voices.add("own", [recording(2.0)], ["These are twenty letters."], "yes")
    told = speak(dia2, LONG, seed=5, pieces=True, voice="own")
    sound, last = sound_of(told), pieces_of(told)[-1]
    again = sound_of(events(dia2.post(**last["again"], response_format="wav", stream_format="sse")))
    rate = 24000
    start, end = round(last["start"] * rate), round(last["end"] * rate)
    assert len(again) == end - start
    fade = round(0.02 * rate)
    np.testing.assert_array_equal(again[fade:], sound[start + fade : end])
