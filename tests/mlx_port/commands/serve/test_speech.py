"""POST /v1/audio/speech: bodies, headers, errors before and after the first sound, clients that leave."""

from __future__ import annotations

import base64
import gc
import json
import threading
import time

import httpx
import numpy as np
import pytest

from mlx_port.commands.serve.settings import Limits, Settings
from tests.mlx_port.commands.serve.live.client import raw
from tests.mlx_port.commands.serve.served import (
    SOON,
    Served,
    Talk,
    error_of,
    expected,
    filled,
    served,
    until,
)
from tests.tts_core.serving import talkers
from tts_core.audio.formats import names
from tts_core.audio.formats.names import FORMATS
from tts_core.audio.formats.writer import StreamEncoder
from tts_core.extras import install

TYPES = {
    "mp3": "audio/mpeg",
    "wav": "audio/wav",
    "flac": "audio/flac",
    "aac": "audio/aac",
    "opus": "audio/ogg",
    "pcm": "audio/pcm;rate=24000;channels=1",
}


@pytest.mark.parametrize("name", FORMATS)
def test_formats(server: Served, name: str) -> None:
    """One container, the bytes that the writer makes of the parts; the rate and the seed in headers."""
    text = "these are some words of a text"
    response = server.post(input=text, response_format=name, seed=11)
    assert response.status_code == 200
    assert response.headers["content-type"] == TYPES[name]
    rate = {"mp3": 8000, "aac": 8000, "opus": 48000, "pcm": 24000}.get(name, 1000)
    assert (response.headers["x-sample-rate"], response.headers["x-seed"]) == (str(rate), "11")
    assert response.headers["transfer-encoding"] == "chunked"
    if name == "opus":  # with a random serial number
        assert len(response.content) == len(expected(text, name))
        assert response.content[:4] == b"OggS"
    else:
        assert response.content == expected(text, name)


def test_mp3_is_the_default_and_wants_no_ffmpeg(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "find_spec", lambda name: None)
    assert server.post(input="one two").content == expected("one two", "mp3")
    error = error_of(server.post(input="one two", response_format="aac"))
    assert error["message"] == f"response_format: aac: PyAV is not installed; {install('formats')}"
    assert error["param"] == "response_format"


def test_two_at_once_never_share_a_body(server: Served) -> None:
    texts = [f"text number {place} {'word ' * (place % 5)}" for place in range(24)]
    found: dict[int, bytes] = {}

    def ask(place: int) -> None:
        found[place] = server.post(
            input=texts[place], response_format=["wav", "mp3", "flac"][place % 3]
        ).content

    threads = [threading.Thread(target=ask, args=(place,)) for place in range(len(texts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for place, text in enumerate(texts):
        assert found[place] == expected(text, ["wav", "mp3", "flac"][place % 3])


@pytest.mark.parametrize("stream_format", ["audio", "sse"])
def test_headers_come_with_the_first_sound(tmp_path, stream_format: str) -> None:
    gate = threading.Semaphore(0)
    source = Talk(gate=gate)
    body = json.dumps({"input": "one two", "stream_format": stream_format}).encode()
    head = f"POST /v1/audio/speech HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    with served(tmp_path, source) as server, raw(server) as found:
        found.sendall(head.encode() + body)
        until(lambda: "join one" in source.log)
        found.settimeout(0.2)
        with pytest.raises(TimeoutError):
            found.recv(1)
        gate.release()
        found.settimeout(SOON)
        assert found.recv(1 << 16).startswith(b"HTTP/1.1 200 OK\r\n")


def test_a_part_arrives_while_the_next_one_is_not_yet_spoken(tmp_path) -> None:
    gate = threading.Semaphore(1)
    body = {"input": "one two three", "response_format": "wav"}
    with (
        served(tmp_path, Talk(gate=gate)) as server,
        httpx.stream("POST", server.url + "/v1/audio/speech", json=body, timeout=SOON) as response,
    ):
        found, pieces = b"", response.iter_raw()
        for words in (1, 2, 3):
            while len(found) < 44 + 2 * words * talkers.SAMPLES:
                found += next(pieces)
            gate.release()
        assert found == expected("one two three", "wav")


def test_an_error_before_the_first_sound_is_json(server: Served) -> None:
    error = error_of(server.post(input="choke on it"))
    assert error == {
        "message": "talker: choked",
        "type": "server_error",
        "param": None,
        "code": "generation_failed",
    }
    response = server.post(input="crash now")
    assert (response.status_code, error_of(response)["code"]) == (500, "internal")
    assert "crashed" not in response.text, "a bug's text may contain anything"
    assert server.post(input="all is well").content == expected("all is well")


@pytest.mark.parametrize("stream_format", ["audio", "sse"])
def test_an_error_after_it_cuts_the_connection(server: Served, stream_format: str) -> None:
    with pytest.raises(httpx.RemoteProtocolError, match="incomplete chunked read"):
        server.post(input="one two choke", stream_format=stream_format)
    assert server.figure('mlx_port_errors_total{code="generation_failed"}') == 1
    assert server.post(input="one").status_code == 200


@pytest.mark.parametrize(("bad", "code"), [(np.nan, "generation_failed"), (None, "no_sound")])
def test_no_sound_and_no_numbers_are_errors(server: Served, monkeypatch, bad, code) -> None:
    monkeypatch.setattr(talkers, "sound", lambda word: np.full(0 if bad is None else 9, bad or 0, np.float32))
    response = server.post(input="one", seed=4)
    assert (response.status_code, error_of(response)["code"]) == (500, code)
    assert bad is not None or "with seed 4; try another seed" in response.text


def test_sse(server: Served) -> None:
    response = server.post(input="one two three", response_format="wav", stream_format="sse")
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    lines = response.text.split("\n\n")
    assert lines.pop() == ""
    events = [json.loads(line.removeprefix("data: ")) for line in lines]
    *deltas, done = events
    assert {event["type"] for event in deltas} == {"speech.audio.delta"}
    assert b"".join(base64.b64decode(event["audio"]) for event in deltas) == expected("one two three", "wav")
    assert done == {
        "type": "speech.audio.done",
        "usage": {"input_tokens": 13, "output_tokens": 3, "total_tokens": 16},
    }


def test_a_voice_without_recording_has_the_seed_of_its_name(server: Served) -> None:
    """Always the same one, another for another name, and the request's own if it gives one."""
    seeds = {
        name: {server.post(input="one", voice=name).headers["x-seed"] for _ in range(2)}
        for name in ("alloy", "echo", "nova")
    }
    assert all(len(found) == 1 for found in seeds.values())
    assert len(set.union(*seeds.values())) == 3
    assert server.post(input="one").headers["x-seed"] in seeds["alloy"]
    assert server.post(input="one", voice={"id": "echo"}).headers["x-seed"] in seeds["echo"]
    assert server.post(input="one", voice="echo", seed=7).headers["x-seed"] == "7"


def test_options_of_the_model_reach_it(tmp_path) -> None:
    source = Talk()
    with served(tmp_path, source) as server:
        body = {"temperature": 0.5, "top_k": 20, "speed": 1.5, "max_seconds": 3, "piece_seconds": 0}
        assert server.post(input="one", model="tts-1", instructions=None, **body).status_code == 200
        assert server.post(input="one", model="talk", speed=1).status_code == 200
    (_, first, prompt), (_, second, _) = source.asked
    assert (first.temperature, first.top_k, first.speed, first.max_seconds) == (0.5, 20, 1.5, 3)
    assert first.piece_seconds is None
    assert prompt is None
    assert second.speed == 1


def test_a_client_that_leaves_frees_its_row(tmp_path) -> None:
    """Before the first sound and after it; the next request is not harmed."""
    gate, body = threading.Semaphore(0), {"input": "leaver " + "word " * 600, "response_format": "pcm"}
    source = Talk(gate=gate)
    with served(tmp_path, source) as server:
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(server.url + "/v1/audio/speech", json=body, timeout=httpx.Timeout(SOON, read=0.3))
        until(lambda: gate.release() or source.log.count("leave leaver") == 1)
        gate.release(3)
        with httpx.stream("POST", server.url + "/v1/audio/speech", json=body, timeout=SOON) as response:
            assert response.status_code == 200
            next(response.iter_raw(100))
        until(lambda: gate.release() or source.log.count("leave leaver") == 2)
        assert source.log.count("step leaver") < 300
        gate.release(10)
        assert server.post(input="i stay").content == expected("i stay")
        until(lambda: server.figure('mlx_port_requests_total{model="talk",outcome="cancelled"}') == 2)


def encoders() -> int:
    return sum(isinstance(each, StreamEncoder) for each in gc.get_objects())


def test_encoders_are_freed_at_once(tmp_path) -> None:
    """Whole, broken off or left: their memory is C's, so the collector of circles comes too late for it."""
    gate, gone = threading.Semaphore(0), {"input": "leaver " * 500}
    source = Talk(gate=gate)
    gc.collect()
    gc.disable()
    try:
        with served(tmp_path, source) as server:
            gate.release(20)
            assert server.post(input="all of it").status_code == 200
            until(lambda: encoders() == 0)
            with pytest.raises(httpx.RemoteProtocolError):
                server.post(input="one two choke")
            until(lambda: encoders() == 0)
            with httpx.stream("POST", server.url + "/v1/audio/speech", json=gone, timeout=SOON) as response:
                assert response.status_code == 200
                pieces = response.iter_raw(100)
                next(pieces)
                assert encoders() == 1
            until(lambda: gate.release() or "leave leaver" in source.log)
            until(lambda: encoders() == 0)
    finally:
        gc.enable()


def test_limits_of_length_and_time(tmp_path) -> None:
    """Each limit of time has a server of its own: what it does not concern may take any time."""
    hurried = Settings(limits=Limits(request_seconds=0.5))
    with served(tmp_path / "hurried", Talk(gate=threading.Semaphore(0)), settings=hurried) as server:
        response = server.post(input="one")
        assert (response.status_code, error_of(response)["code"]) == (503, "timeout")
    with served(tmp_path / "long", settings=Settings(limits=Limits(audio_seconds=1.0))) as server:
        assert server.post(input="one two three four").status_code == 200
        assert server.post(input="one two three four five").status_code == 400
    with served(tmp_path / "slow", settings=Settings(limits=Limits(body_seconds=0.3))) as server:

        def slowly():
            yield b'{"input": "'
            time.sleep(1)
            yield b'one"}'

        json_type = {"content-type": "application/json"}
        slow = httpx.post(server.url + "/v1/audio/speech", content=slowly(), headers=json_type, timeout=SOON)
        assert (slow.status_code, error_of(slow)["code"]) == (408, "timeout")


def test_a_full_queue(tmp_path) -> None:
    """429 with the seconds to wait; the others are served."""
    gate = threading.Semaphore(0)
    source = Talk(gate=gate)
    with served(tmp_path, source, settings=Settings(max_queue=1, places=1)) as server:
        others = filled(server, source)
        response = server.post(input="too many")
        assert (response.status_code, error_of(response)["code"]) == (429, "queue_full")
        assert error_of(response)["type"] == "rate_limit_error"
        assert 1 <= int(response.headers["retry-after"]) < 60
        gate.release(100)
        assert [len([*other]) for other in others] == [1, 1]


def test_health_and_models(tmp_path) -> None:
    with served(tmp_path, {"talk": Talk(), "other": Talk("mars5")}, wait=False) as server:
        response = server.get("/health")
        assert (response.status_code, response.json()["error"]["code"]) == (503, "not_ready")
        server.service.engine.start()
        until(lambda: server.get("/health").status_code == 200)
        assert server.get("/health").json() == {"status": "ok", "models": ["talk", "other"]}
        found = server.get("/v1/models").json()
        assert [(each["id"], each["object"], each["model"]) for each in found["data"]] == [
            ("talk", "model", "dia"),
            ("other", "model", "mars5"),
        ]
        described = server.get("/v1/audio/models").json()["models"]
        assert [{name: one[name] for name in found["data"][0]} for one in described] == found["data"]
        assert server.get("/v1/models/other").json()["owned_by"] == "mlx-port"
        missing = server.get("/v1/models/othr")
        assert missing.status_code == 404
        assert error_of(missing)["message"] == "model: 'othr' is not served here; did you mean other?"


def test_a_model_is_served_by_its_hub_id(tmp_path) -> None:
    with served(tmp_path, {"our/voice": Talk()}) as server:
        assert server.get("/v1/models/our/voice").json()["id"] == "our/voice"
        assert server.get("/v1/models/our/voicex").status_code == 404
        assert server.post(model="our/voice", input="one two").status_code == 200


def test_metrics(server: Served) -> None:
    server.post(input="one two")
    server.post(input="")
    assert server.figure('mlx_port_http_responses_total{route="speech",status="200"}') == 1
    assert server.figure('mlx_port_http_responses_total{route="speech",status="400"}') == 1
    assert server.figure("mlx_port_audio_seconds_total") == pytest.approx(0.5)
    assert server.figure("mlx_port_first_audio_seconds_count") == 1
    assert server.figure("mlx_port_resident_memory_bytes") > 1e7
    assert server.figure("mlx_port_ids_total") == 2


def test_closing_refuses(server: Served) -> None:
    server.service.engine.close()
    response = server.post(input="one")
    assert response.status_code == 503
    error_of(response)
    assert server.get("/health").status_code == 503
