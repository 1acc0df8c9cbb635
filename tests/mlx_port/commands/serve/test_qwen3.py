"""Qwen3-TTS behind the server: built-in voices, OpenAI's names, stored voices, errors without flags."""

from __future__ import annotations

import logging
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from mlx_port.commands.serve.flow import PCM_RATE
from mlx_port.commands.serve.names import VOICES, seed_of
from tests.contract.speakers import converted
from tests.mlx_port.commands.serve.served import Served, error_of, recording, served
from tests.tiny.qwen3 import write_published
from tts_core.audio.formats.names import FORMATS
from tts_core.audio.formats.writer import StreamEncoder
from tts_core.qwen3.config import BASE, CUSTOM_VOICE, MODES, VOICE_DESIGN
from tts_core.serving.source import ModelSource

pytestmark = pytest.mark.rest

SAID = {"input": "The inn.", "response_format": "pcm", "seed": 5, "max_seconds": 0.3}


def source_of(mode: str) -> ModelSource:
    """A small checkpoint, which is converted once."""
    pytest.importorskip("mlx.core", reason="MLX is not installed")
    from mlx_port.loading import assemble, open_parts

    parts = open_parts(_folder(mode))
    return ModelSource("qwen3", parts.configs, parts.documents, lambda: assemble(open_parts(_folder(mode))))


@cache
def _folder(mode: str) -> Path:
    return converted(lambda made: write_published(made, mode, eos=0.2))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Any:
    sources = {mode: source_of(mode) for mode in (CUSTOM_VOICE, BASE, VOICE_DESIGN)}
    with served(tmp_path_factory.mktemp("voices"), sources) as found:
        yield found


@pytest.fixture
def store(server: Served) -> Any:
    yield server.service.voices
    for name in server.service.voices.names():
        server.service.voices.remove(name)


def heard(response: httpx.Response) -> np.ndarray:
    assert response.status_code == 200, response.text
    return np.frombuffer(response.content, "<i2")


def spoken(voice: str, **changes: Any) -> np.ndarray:
    """What the pipeline says, as the server sends it."""
    from mlx_port import Qwen3Pipeline

    given = {"seed": 5, "max_seconds": 0.3} | changes
    said = Qwen3Pipeline.load(_folder(CUSTOM_VOICE)).generate("The inn.", voice=voice, **given)
    encoder = StreamEncoder(FORMATS["pcm"], said.sample_rate, rate=PCM_RATE)
    return np.frombuffer(encoder.add(said.audio) + encoder.finish(), "<i2")


def test_voices_are_listed(server: Served, store: Any) -> None:
    """Configured ones first, then those built in, then OpenAI's."""
    store.add("anna", [recording()], [None], "yes")
    store.add("eric", [recording()], [None], "yes")
    listed = server.get("/v1/audio/voices").json()["voices"]
    assert [one["id"] for one in listed] == ["anna", "eric", "vivian", *VOICES]
    assert ["recordings" in one for one in listed[:3]] == [True, True, False]


@pytest.mark.parametrize(
    ("asked", "speaker"),
    [("vivian", "vivian"), ("Eric", "eric"), ("alloy", "vivian"), ("nova", "eric"), (None, "vivian")],
)
def test_a_voice_is_a_speaker(server: Served, asked: str | None, speaker: str) -> None:
    """OpenAI's names are spread over the speakers, in turn."""
    named = {} if asked is None else {"voice": asked}
    sound = heard(server.post(**SAID, **named))
    np.testing.assert_allclose(sound, spoken(speaker), rtol=0, atol=1.01)


def test_instructions_reach_the_model(server: Served) -> None:
    sound = heard(server.post(**SAID, voice="eric", instructions="slow and warm"))
    expected = spoken("eric", instruct="slow and warm")
    np.testing.assert_allclose(sound, expected, rtol=0, atol=1.01)
    assert sound.tolist() != heard(server.post(**SAID, voice="eric")).tolist()
    designed = heard(server.post(**SAID, model=VOICE_DESIGN, instructions="An old sailor."))
    assert len(designed) > 0


def test_a_stored_voice_of_the_same_name(
    server: Served, store: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """CustomVoice takes no recordings and uses its own, with a warning; Base speaks with the stored one."""
    own = heard(server.post(**SAID, voice="vivian"))
    store.add("vivian", [recording()], [None], "yes")
    with caplog.at_level(logging.WARNING, "tts_core"):
        assert heard(server.post(**SAID, voice="vivian")).tolist() == own.tolist()
    assert "voice: vivian is also stored; Qwen3-TTS CustomVoice, which takes no recordings" in caplog.text
    assert len(heard(server.post(**SAID, model=BASE, voice="vivian"))) > 0
    store.add("anna", [recording()], [None], "yes")
    error = error_of(server.post(**SAID, voice="anna"))
    assert error["message"].startswith("voice: anna has 1 recording, Qwen3-TTS CustomVoice")


@pytest.mark.parametrize("mode", MODES)
def test_errors_name_fields_and_no_flags(server: Served, store: Any, mode: str) -> None:
    """What a mode lacks, in the words of the API."""
    if mode == BASE:
        without = error_of(server.post(**SAID, model=BASE, voice="nova"))
        assert without["param"] == "voice"
        assert "this model speaks with a recording and there is none" in without["message"]
        store.add("anna", [recording()], ["太阳" * 13], "yes")
        error = server.post(**SAID, model=BASE, voice="anna").json()["error"]
        assert error["option"] == "trust_transcript"
        assert error["param"] == "voice"
        assert error["message"].startswith("voice anna: 2.0 s do not fit a transcript")
        assert error["message"].endswith("exactly the words of the recording, or trust_transcript")
        assert len(heard(server.post(**SAID, model=BASE, voice="anna", trust_transcript=True))) > 0
        return
    given = {"voice": "vivien"} if mode == CUSTOM_VOICE else {}
    error = error_of(server.post(**SAID, model=mode, **given))
    assert error["param"] == ("voice" if mode == CUSTOM_VOICE else "instruct")
    assert "--" not in error["message"]


def test_a_seed_comes_from_the_name_where_no_voice_is_built_in(server: Served) -> None:
    fields = {"input": "The inn.", "response_format": "pcm", "max_seconds": 0.3, "model": VOICE_DESIGN}
    fields["instructions"] = "An old sailor."
    named = heard(server.post(**fields, voice="nova"))
    assert heard(server.post(**fields, voice="nova", seed=seed_of("nova"))).tolist() == named.tolist()
