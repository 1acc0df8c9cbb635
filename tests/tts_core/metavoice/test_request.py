"""What is asked of MetaVoice: pieces that both windows hold, their seeds and limits, settings, references."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiny.metavoice import tokenizers
from tts_core.errors import UsageError
from tts_core.metavoice.config import END_OF_AUDIO
from tts_core.metavoice.memory import MetaVoiceJob, job_of
from tts_core.metavoice.request import (
    FRAME_RATE,
    PAUSES,
    PIECE_CHARACTERS,
    SLOWEST,
    Speech,
    check_seconds,
    choose_sampling,
    cut,
    request_speech,
    usual_characters,
)
from tts_core.metavoice.sampling import FirstStageSampling
from tts_core.metavoice.spec import METAVOICE_FIRST_STAGE as FIRST
from tts_core.metavoice.spec import METAVOICE_SECOND_STAGE as SECOND
from tts_core.metavoice.text import normalise
from tts_core.noise import piece_seed

LONG = "It was late, and nobody had come. " * 20


def speech(text: str, **given: object) -> Speech:
    return request_speech(text, tokenizers(), FIRST, SECOND, **{"seed": 1, **given})  # type: ignore[arg-type]


def test_pieces_are_of_whole_sentences_and_fit_the_windows() -> None:
    made = speech(LONG)
    assert len(made.pieces) == 4
    texts = cut(LONG, PIECE_CHARACTERS, SECOND.max_position_embeddings)
    assert all(text.endswith("come.") and len(text) <= 170 for text in texts)
    assert usual_characters(SECOND.max_position_embeddings) == 170
    for piece in made.pieces:
        assert piece.first[-1] == tokenizers().first_stage.end_of_text
        assert piece.second[-1] == tokenizers().second_stage.end_of_text
        assert len(piece.second) + piece.frames < SECOND.max_position_embeddings
        assert len(piece.first) + piece.limit(piece.frames) <= FIRST.max_position_embeddings


@settings(deadline=None, max_examples=60)
@given(st.text(st.sampled_from("aé bC.,!?…\n\t*'“12"), max_size=400), st.integers(1, 300))
def test_nothing_is_dropped_and_no_piece_is_too_long(text: str, most: int) -> None:
    if not any(char.isalnum() for char in text):
        return
    pieces = cut(text, most, 1024)
    assert all(0 < len(piece) <= min(most, 170) for piece in pieces)
    words = [char for char in normalise(text) if char.isalnum()]
    assert [char for piece in pieces for char in piece if char.isalnum()] == words


def test_a_short_text_takes_a_short_cache() -> None:
    """Slow speech of it, not the whole window; what the caller asks for otherwise."""
    (short,) = speech("Hello there.").pieces
    assert short.frames == PAUSES + FRAME_RATE * len("Hello there.") // SLOWEST
    (asked,) = speech("Hello there.", max_frames=700).pieces
    assert asked.frames == 700
    assert speech("Hello there.", max_frames=5000).pieces[0].frames == 1023 - len(asked.second)


@pytest.mark.parametrize("narrow", ["first", "second"])
def test_a_text_may_leave_one_frame(narrow: str) -> None:
    """A frame is two ids of the first stage; the second's sequence ends with a place of padding."""
    ids = len(speech("Hello there.").pieces[0].first)
    for spare, frames in ((1, 1), (0, 0)):
        first, second = FIRST, SECOND
        if narrow == "first":
            first = replace(FIRST, max_position_embeddings=ids + 1 + spare)
        else:
            second = replace(SECOND, max_position_embeddings=ids + 1 + spare)
        given = {"seed": 1, "piece_characters": None}
        if frames:
            (piece,) = request_speech("Hello there.", tokenizers(), first, second, **given).pieces
            assert piece.frames == 1
        else:
            with pytest.raises(UsageError, match=f"text: {ids} ids leave no room for speech"):
                request_speech("Hello there.", tokenizers(), first, second, **given)


def test_memory_is_for_the_longest_piece() -> None:
    """Most ids and most frames, which need not be the same piece's, nor the first's."""
    speeches = [
        speech("Hm.", max_frames=2),
        speech("Zqxj vkwz zqxj vkwz.", max_frames=3),
        speech("the hello the hello the hello."),
    ]
    ids = [len(made.pieces[0].first) for made in speeches]
    frames = speeches[2].pieces[0].frames
    assert ids[0] < ids[2] < ids[1]
    sampling = FirstStageSampling()
    for batch, together in ((2, 2), (9, 3)):
        assert job_of(speeches, sampling, "mbd", batch) == MetaVoiceJob(
            ids[1], frames, together, sampling.rows, "mbd"
        )
    whole = speech(f"Hm. {LONG}")
    ids = [len(piece.first) for piece in whole.pieces]
    assert job_of([whole], sampling, "vocos", 1) == MetaVoiceJob(
        max(ids), max(piece.frames for piece in whole.pieces), 1, sampling.rows, "vocos"
    )


def test_references_at_the_bounds(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "tts_core"):
        check_seconds(30.0)
        assert caplog.text == ""
        check_seconds(29.96)
        assert "30.0 s; the voice is caught better" in caplog.text
        check_seconds(2.0)
    with pytest.raises(UsageError, match="too little for a voice"):
        check_seconds(1.999)


def test_numbers_are_spoken_unless_as_written() -> None:
    table = tokenizers().first_stage
    assert table.decode(speech("€5, so.").pieces[0].first[:-1]) == "five euros, so."
    assert table.decode(speech("5 so.", as_written=True).pieces[0].first[:-1]) == "5 so."
    with pytest.raises(UsageError, match="Latin-1"):
        speech("€5, so.", as_written=True)


def test_seeds_of_pieces_are_their_own() -> None:
    seeds = [piece_seed(3, place) for place in range(50)]
    assert seeds[0] == 3
    assert len({*seeds, *(piece_seed(4, place) for place in range(50))}) == 100
    made = [piece.noise.uniform(0, (3,)) for piece in speech(LONG, seed=3).pieces]
    again = [piece.noise.uniform(0, (3,)) for piece in speech(LONG, seed=3).pieces]
    np.testing.assert_array_equal(made, again)
    assert len({tuple(one) for one in made}) == 4


def test_what_a_sequence_says() -> None:
    one = speech("Hello there.", max_frames=2)
    text = one.pieces[0].first
    codes = np.array([5, 1030, 6, 1031, 7, 1032, END_OF_AUDIO], np.int32)
    said = one.said(0, np.concatenate([text, codes]))
    np.testing.assert_array_equal(said.codes, [[5, 6], [6, 7]])
    assert (said.ids, said.ended) == (5, False)
    whole = speech("Hello there.", max_frames=3).said(0, np.concatenate([text, codes]))
    assert (whole.codes.shape, whole.ids, whole.ended) == ((2, 3), 7, True)


def test_pieces_behind_the_limit_are_not_spoken() -> None:
    made = speech(LONG, max_frames=3)
    codes = np.array([5, 1030, 6, 1031, END_OF_AUDIO], np.int32)
    said = made.all_said([np.concatenate([piece.first, codes]) for piece in made.pieces])
    assert [(one.codes.shape[1], one.ended) for one in said] == [(2, True), (1, False)]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((None, None, None, None), FirstStageSampling()),
        ((1.5, 0.7, 0, None), FirstStageSampling(1.5, temperature=0.7)),
        ((2, None, 50, 0.8), FirstStageSampling(2.0, top_k=50, top_p=0.8)),
        (((3, 1.5), None, None, None), FirstStageSampling(3.0, 1.5, rule="slow")),
        (((3.0, 1.0), 0.5, 7, None), FirstStageSampling(3.0, 1.0, 0.5, None, 7, rule="slow")),
        (((3.0, 1.0), None, 7, 1.0), FirstStageSampling(3.0, 1.0, 1.0, None, 7, rule="slow")),
    ],
)
def test_settings(given: tuple, expected: FirstStageSampling) -> None:
    assert choose_sampling(*given) == expected
