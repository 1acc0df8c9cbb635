"""Requests of MetaVoice: pieces that fit both windows, seeds, limits, settings, references."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import Calls
from tests.tiny.metavoice import documents, tokenizers
from tts_core.codecs.vocos import VOCOS_ENCODEC_24KHZ as VOCODER
from tts_core.errors import UsageError
from tts_core.memory.fits import together
from tts_core.metavoice import request as module
from tts_core.metavoice.config import END_OF_AUDIO
from tts_core.metavoice.footprint import MetaVoiceJob
from tts_core.metavoice.inputs import FirstStageSampling
from tts_core.metavoice.model import METAVOICE_FIRST_STAGE as FIRST
from tts_core.metavoice.model import METAVOICE_SECOND_STAGE as SECOND
from tts_core.metavoice.options import PIECE_SECONDS, MetaVoiceOptions
from tts_core.metavoice.request import (
    FRAME_RATE,
    MetaVoiceFacts,
    MetaVoiceRequest,
    choose_sampling,
    cut,
    piece_characters,
    read_voice,
    usual_characters,
)
from tts_core.metavoice.text import normalise
from tts_core.prompt import Prompt, Reference

CONFIGS = {"metavoice": FIRST, "metavoice_second_stage": SECOND, "vocos": VOCODER}
VECTOR = np.ones(FIRST.speaker_embedding_size, np.float32)
RATE = 24_000
WAVE = np.resize(np.hanning(400).astype(np.float32), 31 * RATE)
LONG = "It was late, and nobody had come. " * 20


def facts() -> MetaVoiceFacts:
    return MetaVoiceFacts(FIRST, SECOND, VOCODER, ("vocos",), tokenizers())


def speech(text: str, **given: Any) -> MetaVoiceRequest:
    return facts().request(text, MetaVoiceOptions(**{"seed": 1, **given}), VECTOR)


def test_pieces_are_of_whole_sentences_and_fit_the_windows() -> None:
    made = speech(LONG)
    assert len(made.pieces) == 4
    texts = cut(LONG, piece_characters(PIECE_SECONDS), SECOND.max_position_embeddings)
    assert all(text.endswith("come.") and len(text) <= 170 for text in texts)
    assert usual_characters(SECOND.max_position_embeddings) == 170
    for piece in made.pieces:
        assert piece.first[-1] == tokenizers().first_stage.end_of_text
        assert piece.second[-1] == tokenizers().second_stage.end_of_text
        assert len(piece.second) + piece.frames < SECOND.max_position_embeddings
        assert len(piece.first) + piece.limit(piece.frames) <= FIRST.max_position_embeddings


@settings(max_examples=60)
@given(st.text(st.sampled_from("aé bC.,!?…\n\t*'“12"), max_size=400), st.integers(1, 300))
def test_nothing_is_dropped_and_no_piece_is_too_long(text: str, most: int) -> None:
    if not any(char.isalnum() for char in text):
        return
    pieces = cut(text, most, 1024)
    assert all(0 < len(piece) <= min(most, 170) for piece in pieces)
    words = [char for char in normalise(text) if char.isalnum()]
    assert [char for piece in pieces for char in piece if char.isalnum()] == words


def test_a_short_text_takes_a_short_cache() -> None:
    """Room for slow speech of the text, not the whole window; or the caller's limit."""
    (short,) = speech("Hello there.").pieces
    assert short.frames == 2 * (12 / 15) * FRAME_RATE + 2 * FRAME_RATE
    (asked,) = speech("Hello there.", max_frames=700).pieces
    assert asked.frames == 700
    assert speech("Hello there.", max_frames=5000).pieces[0].frames == 1023 - len(asked.second)


@pytest.mark.parametrize("narrow", ["first", "second"])
def test_a_text_may_leave_one_frame(narrow: str) -> None:
    """A frame is two ids of the first stage; the second's sequence ends with one padding."""
    ids = len(speech("Hello there.").pieces[0].first)
    for spare, frames in ((1, 1), (0, 0)):
        first, second = FIRST, SECOND
        if narrow == "first":
            first = replace(FIRST, max_position_embeddings=ids + 1 + spare)
        else:
            second = replace(SECOND, max_position_embeddings=ids + 1 + spare)
        narrowed = replace(facts(), first=first, second=second)
        options = MetaVoiceOptions(seed=1, piece_seconds=None)
        if frames:
            (piece,) = narrowed.request("Hello there.", options, VECTOR).pieces
            assert piece.frames == 1
        else:
            with pytest.raises(UsageError, match=f"text: {ids} ids leave no room for speech"):
                narrowed.request("Hello there.", options, VECTOR)


def test_memory_is_for_the_longest_piece() -> None:
    """The most ids and the most frames may be those of different pieces."""
    speeches = [
        speech("Hm.", max_frames=2),
        speech("Zqxj vkwz zqxj vkwz.", max_frames=3),
        speech("the hello the hello the hello."),
    ]
    ids = [len(made.pieces[0].first) for made in speeches]
    frames = speeches[2].pieces[0].frames
    assert ids[0] < ids[2] < ids[1]
    rows = FirstStageSampling().rows
    jobs = [replace(made, decoder="mbd").job() for made in speeches]
    assert together(jobs) == MetaVoiceJob(ids[1], frames, 3, rows, True)
    whole = speech(f"Hm. {LONG}")
    ids = [len(piece.first) for piece in whole.pieces]
    most = max(piece.frames for piece in whole.pieces)
    assert whole.job() == MetaVoiceJob(max(ids), most, 1, rows)


def test_references_at_the_bounds(caplog: pytest.LogCaptureFixture) -> None:
    """Bounds on the total length of all recordings."""

    def read(seconds: float) -> None:
        wave = WAVE[: round(seconds * RATE)]
        for prompt in (Prompt.of(wave), Prompt((Reference(wave[:RATE]), Reference(wave[RATE:])))):
            read_voice(facts(), prompt)

    with caplog.at_level(logging.WARNING, "tts_core"):
        read(30.0)
        assert caplog.text == ""
        read(29.96)
        assert "30.0 s; the voice is closer" in caplog.text
        read(2.0)
    with pytest.raises(UsageError, match="too short for a voice"):
        read(1.999)


def test_numbers_are_spoken_unless_as_written() -> None:
    table = tokenizers().first_stage
    assert table.decode(speech("€5, so.").pieces[0].first[:-1]) == "five euros, so."
    assert table.decode(speech("5 so.", as_written=True).pieces[0].first[:-1]) == "5 so."
    with pytest.raises(UsageError, match="Latin-1"):
        speech("€5, so.", as_written=True)


def test_seeds_of_pieces_are_their_own() -> None:
    made = [piece.noise.uniform(0, (3,)) for piece in speech(LONG, seed=3).pieces]
    again = [piece.noise.uniform(0, (3,)) for piece in speech(LONG, seed=3).pieces]
    np.testing.assert_array_equal(made, again)
    assert len({tuple(one) for one in made}) == 4


def test_what_a_sequence_says() -> None:
    [piece] = speech("Hello there.").pieces
    codes = np.array([5, 1030, 6, 1031, 7, 1032, END_OF_AUDIO], np.int32)
    said = piece.said(np.concatenate([piece.first, codes]), 2)
    np.testing.assert_array_equal(said.codes, [[5, 6], [6, 7]])
    assert (said.ids, said.ended) == (5, False)
    whole = piece.said(np.concatenate([piece.first, codes]), 3)
    assert (whole.codes.shape, whole.ids, whole.ended) == ((2, 3), 7, True)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, FirstStageSampling()),
        ({"cfg_scale": 1.5, "temperature": 0.7, "top_k": 0}, FirstStageSampling(1.5, temperature=0.7)),
        ({"cfg_scale": 2, "top_k": 50, "top_p": 0.8}, FirstStageSampling(2.0, top_k=50, top_p=0.8)),
        ({"cfg_scale": (3, 1.5)}, FirstStageSampling(3.0, 1.5, rule="slow")),
        (
            {"cfg_scale": (3.0, 1.0), "temperature": 0.5, "top_k": 7},
            FirstStageSampling(3.0, 1.0, 0.5, None, 7, rule="slow"),
        ),
        (
            {"cfg_scale": (3.0, 1.0), "top_k": 7, "top_p": 1.0},
            FirstStageSampling(3.0, 1.0, 1.0, None, 7, rule="slow"),
        ),
    ],
)
def test_settings(given: dict[str, Any], expected: FirstStageSampling) -> None:
    assert choose_sampling(MetaVoiceOptions(**given)) == expected


def test_lengths_of_pieces_in_seconds() -> None:
    """By default upstream's 220 characters, if the window has room for that speech."""
    assert piece_characters(MetaVoiceOptions().piece_seconds or 0) == 220
    wide = replace(facts(), second=replace(SECOND, max_position_embeddings=2048))
    lengths = [piece.seconds * 15 for piece in wide.request(LONG, MetaVoiceOptions(), VECTOR).pieces]
    assert 200 < max(lengths) <= 220
    assert [round(15 * piece.seconds) for piece in speech("So it is. " * 3, piece_seconds=0.6).pieces] == [
        9
    ] * 3
    assert len(speech("So it is. " * 30, piece_seconds=None).pieces) == 1


def test_a_limit_in_seconds_is_one_in_frames() -> None:
    made = speech(LONG, max_seconds=0.15)
    assert made.max_frames == 12  # 11.25, rounded up
    assert [piece.frames for piece in made.pieces] == [12] * 4
    assert made.seconds == 12 / FRAME_RATE
    assert speech(LONG).seconds == pytest.approx(len(LONG) / 15, rel=0.01)


def test_each_text_is_prepared_once(calls: Calls) -> None:
    """Spelled out whole, cut whole, then each piece cleaned and tokenized for either stage."""
    calls.watch(module, "spoken", "cut", "normalise", "check_words")
    calls.watch(type(tokenizers().first_stage), "encode")
    speech(LONG)
    assert calls == {"spoken": 1, "cut": 1, "check_words": 1, "normalise": 4, "encode": 8}


def test_a_commands_request_reads_the_tokenizers_of_its_documents() -> None:
    own = speech(LONG)
    made = MetaVoiceFacts.of(CONFIGS, documents()).request(LONG, MetaVoiceOptions(seed=1), VECTOR)
    for one, other in zip(made.pieces, own.pieces, strict=True):
        np.testing.assert_array_equal(one.first, other.first)
        np.testing.assert_array_equal(one.second, other.second)


def test_recordings_of_one_voice() -> None:
    """Resampled to 16 kHz from any rate; messages use the reference's own name."""
    voice = read_voice(facts(), Prompt((Reference(WAVE), Reference(WAVE[::2], sample_rate=RATE // 2))))
    assert voice.vector is None
    first, second = voice.utterances
    assert (first.dtype, first.ndim) == (np.float32, 1)
    assert 30 * 16_000 < len(first) <= 31 * 16_000
    assert abs(len(second) - len(first)) < 2000
    heard = voice.encoded(lambda waves: np.array([len(waves)], np.float32))
    np.testing.assert_array_equal(heard, [2])
    np.testing.assert_array_equal(read_voice(facts(), VECTOR).encoded(lambda _: VECTOR * 0), VECTOR)
    with pytest.raises(UsageError, match=r"^ref-audio: 1\.5 s are too short for a voice"):
        read_voice(facts(), Prompt((Reference(WAVE[:36_000], name="ref-audio"),)))
    with pytest.raises(UsageError, match=r"^second: the reference is silent"):
        read_voice(facts(), Prompt((Reference(WAVE), Reference(0 * WAVE, name="second"))))


def test_a_batch_has_one_value_a_text_and_reads_a_shared_voice_once(monkeypatch: pytest.MonkeyPatch) -> None:
    trim, trimmed = module.trim, []
    monkeypatch.setattr(module, "trim", lambda *given: trimmed.append(None) or trim(*given))
    prompt, texts = Prompt.of(WAVE), ["Hello.", LONG, "So."]
    options = MetaVoiceOptions(seed=[1, 2, 3], max_frames=[9, None, 5])
    batch = facts().requests(texts, options, [prompt, VECTOR, prompt])
    assert [one.seed for one in batch] == [1, 2, 3]
    assert [one.max_frames for one in batch] == [9, None, 5]
    assert [len(one.pieces) for one in batch] == [1, 4, 1]
    assert batch[0].voice is batch[2].voice
    assert len(trimmed) == 1
    job = together([one.job() for one in batch])
    assert (job.batch, job.rows) == (3, 2)
    assert job.frames == max(piece.frames for piece in batch[1].pieces)
    assert job.text_ids == max(len(piece.first) for piece in batch[1].pieces)
    one = batch[0].job()
    assert (one.frames, one.batch, one.text_ids) == (9, 1, len(batch[0].pieces[0].first))
    [whole] = facts().requests(["5 so. " * 40], MetaVoiceOptions(), VECTOR, exactly=True)
    assert len(whole.pieces) == 1
    assert tokenizers().first_stage.decode(whole.pieces[0].first[:3]) == "5 s"
