"""Fields that clients of other servers send: each does what it says."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import soundfile

from mlx_port.commands.serve.body import read_speech
from mlx_port.commands.serve.choose import model_options
from mlx_port.commands.serve.names import choose_model
from mlx_port.commands.serve.settings import Limits, Settings
from tests.mlx_port.commands.serve.live.client import said
from tests.mlx_port.commands.serve.served import Served, Talk, error_of, expected, recording, served
from tests.tts_core.serving import talkers
from tts_core import models

TEXT = "one two three"


def options(model: str, **body: Any) -> dict[str, Any]:
    """The options of a model that a body chooses, nothing ignored."""
    return model_options(read_speech({"input": "a", **body}, Limits()), models.MODELS[model], Limits())


@pytest.mark.parametrize("form", ["wav", "mp3", "flac", "pcm"])
@pytest.mark.parametrize("stream", [True, None])
def test_an_answer_is_streamed_unless_it_is_not_wanted(shared: Served, form: str, stream: Any) -> None:
    answer = shared.post(input=TEXT, response_format=form, stream=stream, stream_format="audio")
    assert answer.content == expected(TEXT, form)
    assert "content-length" not in answer.headers
    assert "warning" not in answer.headers


@pytest.mark.parametrize("form", ["wav", "mp3", "flac", "pcm", "opus"])
def test_stream_false_is_one_file_with_its_length(shared: Served, form: str) -> None:
    answer = shared.post(input=TEXT, response_format=form, stream=False, stream_format="audio")
    assert (answer.status_code, "warning" in answer.headers) == (200, False)
    assert answer.headers["content-length"] == str(len(answer.content))
    assert {"x-seed", "x-sample-rate", "x-expected-seconds"} <= answer.headers.keys()
    if form == "pcm":
        assert answer.content == expected(TEXT, form)
    else:
        with soundfile.SoundFile(io.BytesIO(answer.content)) as sound:
            assert sound.samplerate == int(answer.headers["x-sample-rate"])
            if form in ("wav", "flac"):
                assert len(sound) == sum(len(talkers.sound(word)) for word in TEXT.split())


def test_events_are_streamed_in_any_case(shared: Served) -> None:
    body = {"input": TEXT, "stream_format": "sse", "response_format": "wav", "seed": 3}
    answers = [shared.post(**body, stream=stream) for stream in (True, False)]
    assert answers[0].content == answers[1].content
    assert [answer.headers.get("warning") for answer in answers] == [
        None,
        '299 mlx-port "stream: stream_format sse streams; ignored"',
    ]


def test_an_error_of_a_complete_answer_is_an_answer(tmp_path: Path) -> None:
    """Where a stream would break off."""
    body = {"input": "one choke", "response_format": "wav", "stream": False}
    with served(tmp_path) as server:
        error = error_of(server.post(**body))
        assert error["message"] == "talker: choked"
        with pytest.raises(httpx.RemoteProtocolError):
            server.post(**body | {"stream": True, "input": "one two choke"})
    assert server.service.engine.statistics().running == 0


@pytest.mark.parametrize(
    ("form", "rate"), [("wav", 8000), ("wav", 44_100), ("pcm", 16_000), ("flac", 48_000)]
)
def test_a_rate_that_is_asked_for(shared: Served, form: str, rate: int) -> None:
    answer = shared.post(input=TEXT, response_format=form, sample_rate=rate)
    assert (answer.headers["x-sample-rate"], "warning" in answer.headers) == (str(rate), False)
    seconds = sum(len(talkers.sound(word)) for word in TEXT.split()) / talkers.RATE
    if form == "pcm":
        length = len(answer.content) // 2
        assert f"rate={rate}" in answer.headers["content-type"]
    else:
        sound, found = soundfile.read(io.BytesIO(answer.content))
        assert found == rate
        length = len(sound)
    assert abs(length - seconds * rate) < 3


def test_a_rate_in_events_and_over_a_websocket(shared: Served) -> None:
    assert (
        shared.post(input=TEXT, stream_format="sse", sample_rate=16_000).headers["x-sample-rate"] == "16000"
    )
    found = said(shared, "One two three.", sample_rate=16_000, sped=1)
    started = found.events[0]
    assert (started["type"], started["sample_rate"]) == ("started", 16_000)
    assert started["warnings"] == ["sped: no such field; did you mean speed?; ignored"]
    whole = said(shared, "One two three.")
    assert whole.events[0].keys() == {"type", "sample_rate", "seed"}
    assert abs(len(whole.sound) / 24_000 - len(found.sound) / 16_000) < 0.01


def test_speed_beyond_what_the_model_has_is_its_bound(tmp_path: Path) -> None:
    source = Talk()
    with served(tmp_path, source) as server:
        for given, used in ((0.25, 0.5), (0.5, 0.5), (1, 1), (2, 2), (4, 2)):
            answer = server.post(input=TEXT, speed=given)
            assert source.asked[-1][1].speed == used
            warning = answer.headers.get("warning")
            assert warning == (
                None
                if given == used
                else f'299 mlx-port "speed: {given} is outside [0.5, 2]; {used} is the nearest"'
            )


@pytest.mark.parametrize("blank", ["", "  \n"])
@pytest.mark.parametrize("field", ["instructions", "language", "lang_code", "ref_text"])
def test_a_blank_text_is_nothing(strict: Served, field: str, blank: str) -> None:
    assert strict.post(input=TEXT, **{field: blank}).status_code == 200
    assert options("qwen3", **{field: blank}) == options("dia", **{field: blank}) == {}


def test_instructions_where_a_model_reads_them() -> None:
    assert options("qwen3", instructions="Whisper.") == {"instruct": "Whisper."}


@pytest.mark.parametrize("field", ["language", "lang_code"])
@pytest.mark.parametrize(
    ("given", "used"),
    [("de", "german"), ("de-AT", "german"), ("EN_us", "english"), ("German", "German"), ("auto", "auto")],
)
def test_languages_by_name_and_by_code(field: str, given: str, used: str) -> None:
    assert options("qwen3", **{field: given}) == {"language": used}


@pytest.mark.parametrize("name", models.NAMES)
def test_max_new_tokens_are_frames(name: str) -> None:
    assert options(name, max_new_tokens=7) == {"max_frames": 7}


@pytest.mark.parametrize(
    "name",
    [
        "tts-1",
        "tts-1-1106",
        "tts-1-hd",
        "tts-1-hd-1106",
        "gpt-4o-mini-tts",
        "gpt-4o-mini-tts-2025-12-15",
        "gpt-5-tts",
    ],
)
def test_ids_of_openais_speech_models_stand_for_the_first(shared: Served, name: str) -> None:
    assert choose_model(name, ["mine", "other"]) == "mine"
    assert choose_model(name, ["mine", name]) == name
    assert shared.post(input="one", model=name).status_code == 200
    assert shared.get(f"/v1/models/{name}").status_code == 200


@pytest.mark.parametrize(
    "name", ["tts", "tts-1-ultra", "gpt-4o", "whisper-1", "gpt-4o-mini-transcribe", "my-tts-1"]
)
def test_other_ids_do_not(shared: Served, name: str) -> None:
    assert shared.post(input="one", model=name).status_code == 404


def sound_file(seconds: float = 2.0) -> str:
    """A recording as base64 of a WAV file."""
    data, (samples, rate) = io.BytesIO(), recording(seconds)
    soundfile.write(data, samples, rate, format="wav")
    return base64.b64encode(data.getvalue()).decode()


@pytest.mark.parametrize("before", ["", "data:audio/wav;base64,", "data:;base64,"])
def test_a_recording_in_the_request_is_the_voice(tmp_path: Path, before: str) -> None:
    """With its words where the model reads them, over HTTP, in a batch and over a WebSocket."""
    source, mars5 = Talk("dia"), Talk("mars5")
    said_in_it = "Twenty characters it is."
    body = {"ref_audio": before + sound_file(1.2), "ref_text": said_in_it}
    with served(tmp_path, {"talk": source, "mars5": mars5}) as server:
        assert server.post(input=TEXT, **body).status_code == 200
        assert server.post("/v1/audio/speech/batch", items=[{"input": TEXT, **body}]).status_code == 200
        said(server, "One two.", **body)
        assert server.post(input=TEXT, model="mars5", **{**body, "ref_text": None}).status_code == 200
    assert len(source.asked) >= 3
    for _, _, prompt in source.asked:
        assert (prompt.one.text, prompt.one.sample_rate, prompt.one.name) == (said_in_it, 16_000, "ref_audio")
        np.testing.assert_allclose(prompt.one.audio, recording(1.2)[0], atol=1e-4)
    assert mars5.asked[0][2].one.text is None
    assert list(tmp_path.iterdir()) == []  # no voice is stored


@pytest.mark.parametrize(
    ("change", "field", "words"),
    [
        ({"ref_text": None}, "ref_text", "missing; Dia needs the words of ref_audio"),
        (
            {"ref_audio": base64.b64encode(b"no sound").decode()},
            "ref_audio",
            "the upload cannot be decoded; send a WAV",
        ),
        ({"ref_audio": sound_file(121)}, "ref_audio", "the upload is longer than 120 s; send a WAV"),
    ],
)
def test_a_recording_that_cannot_be_used(
    tmp_path: Path, change: dict[str, Any], field: str, words: str
) -> None:
    body = {"input": TEXT, "ref_audio": sound_file(), "ref_text": "Hello.", **change}
    with served(tmp_path, settings=Settings(limits=Limits(body=1 << 25))) as server:
        error = error_of(server.post(**body))
        assert error["param"] == field
        assert error["message"].startswith(f"{field}: {words}")
        error = error_of(server.post("/v1/audio/speech/batch", items=[body]))
        assert error["param"] == f"items[0].{field}"


def test_a_recording_for_a_model_that_takes_none(embedded: Served) -> None:
    answer = embedded.post(input="Hello there.", ref_audio=sound_file(), ref_text="Hello.")
    assert answer.status_code == 200
    [warning] = answer.headers.get_list("warning")
    assert warning == '299 mlx-port "ref_audio: Dia takes no recording; ignored"'


def test_warnings_of_a_batch_name_the_item(shared: Served) -> None:
    items = [{"input": "one"}, {"input": "one", "sped": 1}]
    answer = shared.post("/v1/audio/speech/batch", items=items)
    assert answer.status_code == 200
    assert (
        answer.headers["warning"]
        == '299 mlx-port "items[1].sped: no such field; did you mean speed?; ignored"'
    )


def test_a_body_as_large_clients_send_it(shared: Served) -> None:
    """All at once."""
    body = {
        "input": TEXT,
        "model": "gpt-4o-mini-tts-2025-12-15",
        "voice": "alloy",
        "instructions": "Speak in a cheerful tone.",
        "response_format": "pcm",
        "speed": 1.0,
        "stream": True,
        "language": "Auto",
        "task_type": "CustomVoice",
        "max_new_tokens": 2048,
        "non_streaming_mode": False,
    }
    answer = shared.post(**body)
    assert answer.content == expected(TEXT, "pcm")
    named = {one.partition('"')[2].partition(":")[0] for one in answer.headers.get_list("warning")}
    assert named == {"instructions", "language", "task_type", "non_streaming_mode"}
