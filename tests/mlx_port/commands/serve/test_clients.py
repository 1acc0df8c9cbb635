"""Clients as people have them: the openai package, requests as Open WebUI sends them, curl."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import soundfile

from mlx_port.commands.serve.settings import Access, Settings
from tests.mlx_port.commands.serve.served import SOON, Served, Talk, expected, filled, served, until

if TYPE_CHECKING:
    import openai
else:
    openai = pytest.importorskip("openai", reason="openai is not installed")


@pytest.fixture
def client() -> Iterator[Callable[..., openai.OpenAI]]:
    """Clients of servers, closed at the end."""
    with ExitStack() as opened:

        def made(server: Served, key: str = "unused") -> openai.OpenAI:
            return opened.enter_context(
                openai.OpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0, timeout=SOON)
            )

        yield made


def test_openai_create(client: Any, server: Served, tmp_path: Path) -> None:
    answer = client(server).audio.speech.create(model="tts-1", voice="alloy", input="one two three")
    assert answer.content == expected("one two three")
    answer.write_to_file(tmp_path / "a.mp3")
    assert soundfile.info(tmp_path / "a.mp3").format == "MP3"
    answer = client(server).audio.speech.create(
        model="talk",
        voice={"id": "nova"},
        input="one",
        response_format="wav",
        speed=1.0,
        extra_body={"seed": 9, "temperature": 0.5},
    )
    assert answer.content == expected("one", "wav")
    assert answer.response.headers["x-seed"] == "9"


TOLD = " ".join(f"word{place}" for place in range(40))  # 10 s


@pytest.mark.parametrize("name", ["wav", "flac", "mp3", "opus", "aac", "pcm"])
def test_openai_create_gives_files_that_libraries_read(
    client: Any, server: Served, tmp_path: Path, name: Any
) -> None:
    """With all their sound, by soundfile and by PyAV; FLAC with its length."""
    av = pytest.importorskip("av", reason="av is not installed: extra formats")
    answer = client(server).audio.speech.create(
        model="tts-1", voice="alloy", input=TOLD, response_format=name
    )
    path = tmp_path / f"a.{name}"
    answer.write_to_file(path)
    rate = int(answer.response.headers["x-sample-rate"])
    raw = {"format": "s16le", "options": {"sample_rate": str(rate), "ch_layout": "mono"}}
    with av.open(path, **(raw if name == "pcm" else {})) as found:
        samples = sum(frame.samples for frame in found.decode(audio=0))
        assert samples / rate == pytest.approx(10, abs=0.5)
        assert name != "flac" or found.duration == 10_000_000  # microseconds
    if name == "aac":
        return  # not a format of libsndfile
    described = {"samplerate": rate, "channels": 1, "subtype": "PCM_16", "format": "RAW"}
    sound, rate = soundfile.read(path, **(described if name == "pcm" else {}))
    assert len(sound) / rate == pytest.approx(10, abs=0.5)
    assert abs(sound).max() > 0.2


def test_openai_with_streaming_response(client: Any, server: Served, tmp_path: Path) -> None:
    with client(server).audio.speech.with_streaming_response.create(
        model="gpt-4o-mini-tts", voice="alloy", input="one two three", response_format="pcm"
    ) as answer:
        assert answer.headers["content-type"] == "audio/pcm;rate=24000;channels=1"
        assert b"".join(answer.iter_bytes()) == expected("one two three", "pcm")
    with client(server).audio.speech.with_streaming_response.create(
        model="tts-1", voice="alloy", input="one two three", stream_format="sse"
    ) as answer:
        events = [json.loads(line.removeprefix("data: ")) for line in answer.iter_lines() if line]
    assert [event["type"] for event in events[-2:]] == ["speech.audio.delta", "speech.audio.done"]


def test_openai_models_and_voices(client: Any, server: Served) -> None:
    assert [model.id for model in client(server).models.list()] == ["talk"]
    assert client(server).models.retrieve("talk").owned_by == "mlx-port"


def test_every_error_class_of_openai(client: Any, tmp_path: Path) -> None:
    """But those of statuses that the route of speech never answers."""
    gate = threading.Semaphore(0)
    settings, source = Settings(max_queue=1, places=1, access=Access(api_key="key")), Talk(gate=gate)
    with served(tmp_path, source, settings=settings) as server:
        right = client(server, "key")

        def speak(text: str, by: openai.OpenAI = right, **more: object) -> openai.APIStatusError:
            given = {"model": "tts-1", "voice": "alloy", "input": text} | more
            with pytest.raises(openai.APIStatusError) as caught:
                by.audio.speech.create(**given)  # pyright: ignore[reportArgumentType]
            assert str(caught.value.request_id).startswith("req_")
            return caught.value

        error = speak("")
        assert isinstance(error, openai.BadRequestError)
        assert (error.param, error.type, error.code) == ("input", "invalid_request_error", "invalid_value")
        assert isinstance(speak("a", client(server, "wrong")), openai.AuthenticationError)
        page = right.with_options(default_headers={"origin": "https://example.org"})
        assert isinstance(speak("a", page), openai.PermissionDeniedError)
        assert isinstance(speak("a", model="none"), openai.NotFoundError)
        filled(server, source)
        error = speak("one more")
        assert isinstance(error, openai.RateLimitError)
        assert int(error.response.headers["retry-after"]) >= 1
        gate.release(100)
        until(lambda: server.service.engine.statistics().queued == 0)
        assert isinstance(speak("choke"), openai.InternalServerError)
        with pytest.raises(openai.APIConnectionError):  # a cut body, too
            right.audio.speech.create(model="tts-1", voice="alloy", input="one choke")
        server.service.engine.close()
        assert speak("late").status_code == 503
    with pytest.raises(openai.APIConnectionError):
        right.audio.speech.create(model="tts-1", voice="alloy", input="gone")


def test_open_webui(server: Served) -> None:
    """It asks for voices and models, sends its users' names, expects MP3, and shows error.message."""
    voices = server.get("/v1/audio/voices").json()["voices"]
    assert {voice["id"]: voice["name"] for voice in voices}["alloy"] == "alloy"
    assert [model["id"] for model in server.get("/v1/audio/models").json()["models"]] == ["talk"]
    headers = {"Authorization": "Bearer", "X-OpenWebUI-User-Name": "An%20Na", "X-OpenWebUI-User-Id": "1"}
    body = {"model": "tts-1", "input": "one sentence.", "voice": "alloy"}
    answer = httpx.post(server.url + "/v1/audio/speech", json=body, headers=headers, timeout=SOON)
    assert answer.content == expected("one sentence.")
    assert soundfile.info(io.BytesIO(answer.content)).format == "MP3"
    assert "no words" in server.post(**body | {"input": "..."}).json()["error"]["message"]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl(server: Served, tmp_path: Path) -> None:
    body = '{"input": "one two three", "response_format": "wav"}'
    command = ["curl", "-sS", "--fail-with-body", f"{server.url}/v1/audio/speech", "-d", body]
    command += ["-H", "content-type: application/json", "-m", "20"]
    done = subprocess.run([*command, "-o", str(tmp_path / "a.wav")], check=True, capture_output=True)
    assert done.stderr == b""
    assert (tmp_path / "a.wav").read_bytes() == expected("one two three", "wav")
    bad = subprocess.run([*command, "-d", "x"], check=False, capture_output=True)
    assert bad.returncode == 22
    cut = subprocess.run(
        [word.replace("three", "choke") for word in command], check=False, capture_output=True
    )
    assert cut.returncode == 18  # transfer closed with outstanding data
