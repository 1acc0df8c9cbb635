"""Events of pieces: their times, and the requests that speak them again, with the embedded voice."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from mlx_port.commands.serve.body import read_speech
from mlx_port.commands.serve.pieces import SpeechPieces
from mlx_port.commands.serve.settings import Limits
from tests.mlx_port.commands.serve.served import Served, Talk, error_of, served
from tests.mlx_port.commands.serve.spoken import events, pieces_of, samples, sound_of
from tts_core.results import Meter
from tts_core.text.captions import Cue, Word, turn_texts

pytestmark = pytest.mark.rest

SCRIPT = (
    "[S1] Hello there, all of you, dear friends. [pause:0.5] It goes on for a while. [pause:0.1] "
    "[S2] Is it really? [pause:0.1] "
    "[S1] Yes, and that is all."
)
DIALOGUE = "[S1] Hello there. [S2] Is it really? It is late. [S1] Yes, and that is all."
RATE = 16000
FADE = 320  # samples


def speak(server: Served, text: str = SCRIPT, **more: Any) -> list[dict[str, Any]]:
    body = {"response_format": "wav", "stream_format": "sse", "pieces": True, "seed": 3}
    return events(server.post(input=text, **body, **more))


@pytest.fixture(scope="module")
def spoken(embedded: Served) -> list[dict[str, Any]]:
    """The events of the script."""
    return speak(embedded)


def test_pieces_end_in_order_and_can_be_spoken_again(embedded: Served, spoken: list[dict[str, Any]]) -> None:
    """With its own seed a piece that continues others is the same speech; with another one it is not."""
    sound, pieces = sound_of(spoken), pieces_of(spoken)
    assert len(pieces) > 1
    assert [piece["index"] for piece in pieces] == [*range(len(pieces))]
    times = [time for piece in pieces for time in (piece["start"], piece["end"])]
    assert times == sorted(times)
    assert times[-1] == pytest.approx(len(sound) / RATE)
    assert pieces[1]["start"] - pieces[0]["end"] == pytest.approx(0.5)
    assert (
        " ".join(piece["text"].replace("[S1] ", "") for piece in pieces[:1])
        == "Hello there, all of you, dear friends."
    )
    last = pieces[-1]
    own = sound[round(last["start"] * RATE) : round(last["end"] * RATE)]
    again = samples(embedded.post(**last["again"], response_format="wav").content)
    assert len(again) == len(own)
    np.testing.assert_array_equal(again[FADE:], own[FADE:])
    other = samples(embedded.post(**{**last["again"], "seed": 8}, response_format="wav").content)
    assert not np.array_equal(other, again)


def test_the_first_piece_keeps_the_voice_of_the_others(
    embedded: Served, spoken: list[dict[str, Any]]
) -> None:
    """It continues itself: its prompt is what it said, and theirs begins with the same."""
    first, *others = pieces_of(spoken)
    assert first["again"]["prompt"]["text"] == first["text"]
    for other in others:
        assert other["again"]["prompt"]["text"].startswith(first["text"])
        for own, theirs in zip(
            first["again"]["prompt"]["codes"], other["again"]["prompt"]["codes"], strict=True
        ):
            assert theirs[: len(own)] == own
    assert embedded.post(**{**first["again"], "seed": 8}).status_code == 200


def test_a_text_of_one_piece_is_asked_for_as_it_was(embedded: Served) -> None:
    found = speak(embedded, "[S1] Hello there.", voice="echo", temperature=0.9)
    [piece] = pieces_of(found)
    assert piece["again"] == {
        "model": "embedded",
        "voice": "echo",
        "temperature": 0.9,
        "input": "[S1] Hello there.",
        "seed": 3,
    }
    assert (piece["start"], piece["end"]) == (0, pytest.approx(len(sound_of(found)) / RATE))
    again = embedded.post(**piece["again"], response_format="wav").content
    np.testing.assert_array_equal(samples(again), sound_of(found))


def test_each_turn_of_a_piece_can_be_spoken_again_by_itself(embedded: Served) -> None:
    """It continues the piece that it is in, where its speaker is heard."""
    found = speak(embedded, f"[S1] Well. [pause:0.3] {DIALOGUE}")
    turns = pieces_of(found)
    own = turns[-3:]
    assert [turn["text"] for turn in own] == turn_texts(DIALOGUE)
    assert [turn["index"] for turn in turns] == [*range(len(turns))]
    assert turns[-1]["end"] == pytest.approx(len(sound_of(found)) / RATE)
    for before, turn in pairwise(own):
        assert turn["start"] == before["end"] > before["start"]
    assert [turn["again"]["prompt"]["text"] for turn in own] == [DIALOGUE] * 3
    assert [turn["again"]["input"] for turn in own] == [
        "Hello there.",
        own[1]["text"],
        "Yes, and that is all.",
    ]
    for turn in own:
        again = embedded.post(
            **{**turn["again"], "seed": 8}, response_format="wav", stream_format="sse", pieces=True
        )
        [spoken] = pieces_of(events(again))
        assert spoken["text"].endswith(turn["again"]["input"])
        assert 0.4 < spoken["end"] / (turn["end"] - turn["start"]) < 2.5


def test_a_prompt_is_continued_and_given_again(embedded: Served, spoken: list[dict[str, Any]]) -> None:
    """A piece that was spoken again can be spoken again."""
    again = pieces_of(spoken)[-1]["again"]
    [piece] = pieces_of(
        events(embedded.post(**again, response_format="wav", stream_format="sse", pieces=True))
    )
    assert piece["again"] == again


def test_the_expected_length_is_in_a_header(embedded: Served) -> None:
    response = embedded.post(input="[S1] Hello there.", response_format="wav")
    assert 0.5 < float(response.headers["x-expected-seconds"]) < 3


BAD: list[tuple[dict[str, Any], str]] = [
    ({"pieces": True}, "pieces"),
    ({"pieces": "yes", "stream_format": "sse"}, "pieces"),
    ({"prompt": "a"}, "prompt"),
    ({"prompt": {"text": "[S1] Hello.", "codes": [[1, 2], [3, 4]]}}, "prompt"),  # too few codebooks
]


@pytest.mark.parametrize(("change", "field"), BAD, ids=[str(change)[:50] for change, _ in BAD])
def test_bad_fields_are_named(embedded: Served, change: dict[str, Any], field: str) -> None:
    response = embedded.post(input="[S1] Hello.", **change)
    assert response.status_code == 400
    assert error_of(response)["param"] == field


def asked(**body: Any) -> Any:
    return read_speech({"input": "One. Two.", "stream_format": "sse", "pieces": True, **body}, Limits())


def ended(pieces: SpeechPieces, *cues: Cue, last: bool = False) -> list[dict[str, Any]]:
    """The events of a part in which pieces of a model end that only gives cues."""
    meter = Meter(1000)
    audio, codes = np.zeros(10, np.float32), np.zeros((1, 1), np.int32)
    reason = "stop" if last else None
    part = meter.result(audio, codes, seed=5, token_count=1, peak_bytes=0, finish_reason=reason, cues=cues)
    return [*pieces.ended(part)]


def test_pieces_of_a_model_that_needs_a_recording(tmp_path) -> None:
    """Each is spoken from the same recording, with its own seed: the first one's is the text's."""
    with served(tmp_path, Talk("mars5")) as server:
        pieces = SpeechPieces(server.service, asked(voice="alloy", temperature=0.5))
        [one] = ended(pieces, Cue("One.", 0, 1))
        [two] = ended(pieces, Cue("Two.", 1.2, 2, piece=1), last=True)
        kept = {"model": "talk", "voice": "alloy", "temperature": 0.5}
        assert one["again"] == {**kept, "input": "One.", "seed": 5}
        assert two["again"] == {**kept, "input": "Two.", "seed": two["again"]["seed"]}
        assert (two["index"], two["start"], two["end"]) == (1, 1.2, 2)
        assert two["again"]["seed"] != 5


def test_a_model_whose_first_piece_is_the_voice_of_the_others(tmp_path) -> None:
    """Without a recording only the whole text has that voice; the words have their times."""
    with served(tmp_path, Talk("dia2")) as server:
        pieces = SpeechPieces(server.service, asked())
        [one] = ended(pieces, Cue("One.", 0, 1, (Word("One.", 0.1),)))
        assert one["again"] is None
        assert one["words"] == [{"text": "One.", "start": 0.1, "end": 1}]
