"""Fields that cannot be used: each is a 4xx that names it, and nothing is spoken.

BAD has cases of vllm-omni#3649, which collects what a speech server let through, and our own.
"""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest

from tests.mlx_port.commands.serve.served import SOON, Served, Talk, error_of, recording, served
from tts_core.serving.voices import VoiceStore

BAD: list[tuple[dict[str, Any], str | None, str]] = [
    ({"input": " \n\t"}, "input", "empty"),
    ({"input": None}, "input", "missing"),
    ({"input": 5}, "input", "not a string"),
    ({"input": "..."}, "input", "no words"),
    ({"input": "a\0b"}, "input", "a control character"),
    ({"input": "\ud800 a"}, "input", "a control character"),
    ({"input": "x" * 4097}, "input", "4097 characters; at most 4096"),
    ({"voice": " "}, "voice", "give a name"),
    ({"voice": 3}, "voice", "give a name"),
    ({"voice": {"id": ""}}, "voice", "give a name"),
    ({"voice": {"id": "alloy", "x": 1}}, "voice", 'one field, "id"'),
    ({"voice": "aloy"}, "voice", "did you mean alloy?"),
    ({"voice": "../../etc/passwd"}, "voice", "is not there"),
    ({"model": ""}, "model", "empty"),
    ({"model": "tlk"}, "model", "did you mean talk?"),
    ({"response_format": "mpeg"}, "response_format", "not one of wav, flac, mp3, opus, aac, pcm"),
    ({"response_format": ["mp3"]}, "response_format", "not one of"),
    ({"stream_format": "events"}, "stream_format", "not one of audio, sse"),
    ({"instructions": 123}, "instructions", "not a string"),
    ({"speed": "fast"}, "speed", "is not a number"),
    ({"speed": [1]}, "speed", "[1] is not a number"),
    ({"speed": 4.1}, "speed", "4.1 is above 4"),
    ({"speed": 0.2}, "speed", "0.2 is below 0.25"),
    ({"temperature": [1]}, "temperature", "give a single value"),
    ({"stream": "yes"}, "stream", "'yes' is neither true nor false"),
    ({"language": 5}, "language", "not a string"),
    ({"sample_rate": 7999}, "sample_rate", "7999 is below 8000"),
    ({"sample_rate": 24000.5}, "sample_rate", "24000.5 is not a whole number"),
    ({"ref_text": ["a"]}, "ref_text", "not a string"),
    ({"seed": -1}, "seed", "outside [0, 2**64 - 1]"),
    ({"seed": 1.5}, "seed", "is not a whole number"),
    ({"temperature": -1}, "temperature", "is outside [0, 100]"),
    ({"top_p": 7}, "top_p", "outside (0, 1]"),
    ({"max_new_tokens": 0}, "max_new_tokens", "0 is below 1"),
    ({"max_seconds": 1e4}, "max_seconds", "10000 is more than 900"),
    ({"max_seconds": 1e9}, "max_seconds", "is outside (0, 86400]"),
    ({"temperature": 2**63}, "temperature", "9223372036854775808 is outside [0, 100]"),
    ({"cfg_scale": 10**400}, "cfg_scale", "is outside [0, 100]"),
    (
        {"ref_audio": "file:///etc/passwd"},
        "ref_audio",
        "the server fetches no file: address; send the file",
    ),
    ({"ref_audio": "https://example.org/a.wav"}, "ref_audio", "the server fetches no https: address"),
    ({"ref_audio": "/etc/passwd"}, "ref_audio", "not base64, and the server opens no path"),
    ({"ref_audio": "voices/anna.wav"}, "ref_audio", "not base64, and the server opens no path"),
    ({"ref_audio": "data:audio/wav,abc"}, "ref_audio", "not a data: URL in base64"),
    ({"ref_audio": ""}, "ref_audio", "empty"),
]


UNUSABLE: list[tuple[dict[str, Any], str, str]] = [  # ignored, or refused by a server that is strict
    ({"instructions": "Whisper."}, "instructions", "dia takes none; leave it out"),
    ({"SPEED": 1}, "SPEED", "no such field"),
    ({"temprature": 1}, "temprature", "did you mean temperature?"),
    ({"last_channel_free": True}, "last_channel_free", "no such field"),
    ({"": 1}, "", "no such field"),
    ({"speed": 4}, "speed", "outside [0.5, 2]"),
    ({"language": "de"}, "language", "dia takes none; leave it out"),
    ({"lang_code": "de"}, "lang_code", "dia takes none; leave it out"),
    ({"task_type": "CustomVoice"}, "task_type", "dia takes none"),
    ({"non_streaming_mode": True}, "non_streaming_mode", "dia takes none"),
    ({"ref_text": "Hello."}, "ref_text", "there is no ref_audio"),
    ({"sample_rate": 23_000, "response_format": "mp3"}, "sample_rate", "23000 is none of mp3's"),
    ({"stream": False, "stream_format": "sse"}, "stream", "stream_format sse streams"),
]


@pytest.mark.parametrize(("change", "field", "words"), BAD, ids=[str(change)[:40] for change, _, _ in BAD])
def test_a_bad_field_is_named(shared: Served, change, field, words) -> None:
    response = shared.post(**{"input": "one two", "model": "tts-1", "voice": "alloy"} | change)
    assert response.status_code == (404 if change.get("model") else 400)
    error = error_of(response)
    assert (error["param"], error["type"]) == (field, "invalid_request_error")
    assert words in error["message"]
    assert shared.service.engine.statistics().steps == 0


@pytest.mark.parametrize(
    ("change", "field", "words"), UNUSABLE, ids=[str(change)[:40] for change, _, _ in UNUSABLE]
)
def test_a_strict_server_refuses_what_is_of_no_use(strict: Served, change, field, words) -> None:
    response = strict.post(**{"input": "one two"} | change)
    error = error_of(response)
    assert (response.status_code, error["param"]) == (400, field)
    assert words in error["message"]
    assert strict.service.engine.statistics().steps == 0


@pytest.mark.parametrize(
    ("change", "field", "words"), UNUSABLE, ids=[str(change)[:40] for change, _, _ in UNUSABLE]
)
def test_any_other_says_that_it_is_ignored(
    server: Served, caplog: pytest.LogCaptureFixture, change, field, words
) -> None:
    response = server.post(**{"input": "one two"} | change)
    assert response.status_code == 200
    [warning] = response.headers.get_list("warning")
    assert re.fullmatch(rf'299 mlx-port "{field}: .*{re.escape(words.partition("; leave")[0])}.*"', warning)
    [line] = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    assert line == f"a field is ignored: {warning[14:-1]}"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"\xff",
        b'{"input": NaN}',
        b'{"input": "a", "input": "b"}',
        b"[" * 9999,
    ],
    ids=str,
)
def test_bodies_that_are_no_object(shared: Served, body: bytes) -> None:
    json_type = {"content-type": "application/json"}
    response = httpx.post(shared.url + "/v1/audio/speech", content=body, headers=json_type, timeout=SOON)
    assert (response.status_code, error_of(response)["code"]) == (400, "invalid_json")


def test_other_content_types(shared: Served) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        response = httpx.post(
            shared.url + "/v1/audio/speech",
            content=b'{"input": "a"}',
            headers={"content-type": kind},
            timeout=SOON,
        )
        assert response.status_code == 400
        assert "is not application/json" in error_of(response)["message"]


@pytest.mark.parametrize(
    ("method", "path", "status", "words"),
    [
        ("GET", "/v1/audio/speech", 405, "GET: not for this route; it takes POST"),
        ("PUT", "/v1/models", 405, "it takes GET, HEAD"),
        ("POST", "/docs", 405, "it takes GET, HEAD"),
        ("GET", "/page", 404, "no such route"),
        ("POST", "/v1/audio/speach", 404, "did you mean /v1/audio/speech?"),
        ("GET", "/v1/models/", 404, "no such route"),
        ("GET", "/v1/audio/voices/../../../etc/passwd", 404, ""),
        ("DELETE", "/v1/audio/voices/..%2f..%2fetc", 404, ""),
    ],
)
def test_routes_that_are_not(shared: Served, method, path, status, words) -> None:
    response = httpx.request(method, shared.url + path, timeout=SOON)
    assert response.status_code == status
    assert words in error_of(response)["message"]


def test_openai_names_map_to_what_is_loaded(tmp_path) -> None:
    """A model without a recording of its own is refused with the way to add one; then all names speak."""
    source = Talk("mars5")
    with served(tmp_path, {"talk": Talk(), "mine": source}) as server:
        error = error_of(server.post(input="one", model="mine", voice="alloy"))
        assert error["param"] == "voice"
        assert "POST /v1/audio/voices or: mlx-port voices add" in error["message"]
        store = VoiceStore(tmp_path)
        store.add("anna", [recording()], ["Twenty characters it is."], "yes")
        store.add("bob", [recording()], [None], "yes")
        for voice in ("alloy", "ash", "ballad", "anna"):
            assert server.post(input="one", model="mine", voice=voice).status_code == 200
        assert [asked[2].one.text for asked in source.asked] == [
            "Twenty characters it is.",
            None,
            "Twenty characters it is.",
            "Twenty characters it is.",
        ]
        for model in ("tts-1", "tts-1-hd", "gpt-4o-mini-tts"):
            assert server.post(input="one", model=model).status_code == 200
        error = error_of(server.post(input="one", model="talk", voice="bob"))
        assert error["message"] == "voice: bob has no transcript, which Dia needs; add it with one"
        assert server.post(input="one", model="talk", voice="anna").status_code == 200


def test_a_voice_with_more_recordings_than_the_model_takes(tmp_path) -> None:
    source = Talk("metavoice")
    with served(tmp_path, {"talk": Talk(), "mine": source}) as server:
        said = "Twenty characters it is."
        VoiceStore(tmp_path).add("pair", [recording(), recording()], [said, said], "yes")
        error = error_of(server.post(input="one", voice="pair"))
        assert error["message"] == "voice: pair has 2 recordings, Dia takes 1"
        assert server.post(input="one", voice="pair", model="mine").status_code == 200
        assert [one.text for one in source.asked[0][2].references] == [None, None]
