"""Clients that read their answers slowly, or not at all: they get them or are cut off, and harm nobody."""

from __future__ import annotations

import base64
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import psutil
import pytest

from mlx_port.commands.serve.live import protocols
from mlx_port.commands.serve.settings import Limits, Settings
from tests.mlx_port.commands.serve.served import SOON, Served, Talk, expected, served, until
from tests.tts_core.serving import talkers

pytestmark = pytest.mark.rest

TEXT = "one two three four five six seven eight nine ten " * 2
LENGTH = 25_000  # samples of a word: a megabyte of WAV in all, more than the system keeps of an answer
TALK = 'mlx_port_requests_total{model="talk",outcome="stop"}'


@pytest.fixture(autouse=True)
def long_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Speak in few steps."""
    short = talkers.sound
    monkeypatch.setattr(talkers, "sound", lambda word: np.resize(short(word), LENGTH))


@contextmanager
def asked(
    server: Served,
    body: dict[str, Any] | bytes,
    path: str = "/v1/audio/speech",
    *,
    buffer: int = 4096,
    kind: str = "application/json",
    connection: str = "close",
) -> Iterator[socket.socket]:
    """Send a request; nothing is read. buffer: of the system, for what arrives."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: {connection}\r\n"
        f"Content-Type: {kind}\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    with socket.socket() as found:
        found.settimeout(SOON)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        found.connect(("127.0.0.1", int(server.url.rpartition(":")[2])))
        found.sendall(head.encode() + content)
        yield found


def speech(stream_format: str = "audio", text: str = TEXT) -> dict[str, Any]:
    return {"input": text, "response_format": "wav", "stream_format": stream_format}


def content_of(answer: bytes) -> bytes:
    """Body of a chunked answer. Raises ValueError if it is not whole."""
    data, body = answer.partition(b"\r\n\r\n")[2], b""
    while True:
        size, _, data = data.partition(b"\r\n")
        length = int(size, 16)
        if not length:
            return body
        body, data = body + data[:length], data[length + 2 :]


def read(one: socket.socket, size: int, pause: float = 0.0) -> bytes:
    """Read to the end, `size` bytes at most between two pauses of so many seconds."""
    answer = b""
    with suppress(ConnectionResetError):
        while data := one.recv(size):
            answer += data
            time.sleep(pause)
    return answer


def errors(server: Served, code: str) -> float:
    return server.figure(f'mlx_port_errors_total{{code="{code}"}}')


def settings(**limits: Any) -> Settings:
    return Settings(limits=Limits(**limits))


@pytest.mark.parametrize("stream_format", ["audio", "sse"])
def test_one_that_reads_nothing_is_cut_off(tmp_path, stream_format: str) -> None:
    """Its speech is spoken at full speed and leaves the batch, others are served, its socket is closed."""
    with served(tmp_path, settings=settings(read_seconds=3.0)) as server:
        server.post(input="one")
        files = psutil.Process().num_fds()
        with asked(server, speech(stream_format)) as slow:
            until(lambda: server.figure(TALK) == 2)
            assert server.post(input="one two").content == expected("one two")
            until(lambda: errors(server, "stalled") == 1)
            with pytest.raises(ValueError, match="invalid literal"):
                content_of(read(slow, 1 << 16))
        until(lambda: psutil.Process().num_fds() <= files)


def test_one_that_reads_a_byte_now_and_then_is_cut_off(tmp_path) -> None:
    with served(tmp_path, settings=settings(read_seconds=0.5)) as server, asked(server, speech()) as slow:
        end = time.perf_counter() + SOON
        while not errors(server, "stalled"):
            slow.recv(1)
            time.sleep(0.02)
            assert time.perf_counter() < end


@pytest.mark.parametrize("stream_format", ["audio", "sse"])
def test_one_that_reads_slowly_gets_all_of_it(tmp_path, stream_format: str) -> None:
    """Long after its speech has left the batch; the sse, more than a megabyte, waits in a file."""
    limits = settings(read_seconds=1.0)
    with (
        served(tmp_path, settings=limits) as server,
        asked(server, speech(stream_format), buffer=1 << 16) as slow,
    ):
        until(lambda: server.figure(TALK) == 1)
        found = content_of(read(slow, 16384, 0.04))
        assert len(found) / 16384 * 0.04 > 2 * limits.limits.read_seconds
        if stream_format == "sse":
            assert len(found) > 1 << 20
            events = [json.loads(line[6:]) for line in found.decode().split("\n\n") if line]
            found = b"".join(base64.b64decode(each["audio"]) for each in events if "audio" in each)
        assert found == expected(TEXT, "wav")
        assert errors(server, "stalled") == 0


def test_a_slow_reader_is_cut_off_when_its_time_is_over(tmp_path) -> None:
    limits = settings(request_seconds=1)
    with served(tmp_path, settings=limits) as server, asked(server, speech()) as slow:
        answer = read(slow, 4096, 0.02)
        assert len(answer) < 1_000_000
        with pytest.raises(ValueError, match="invalid literal"):
            content_of(answer)
        until(lambda: errors(server, "timeout") == 1)


def test_a_speech_is_dropped_when_its_reader_is_cut_off(tmp_path) -> None:
    """One that is still spoken then frees its row."""
    gate = threading.Semaphore(15)
    source = Talk(gate=gate)
    with (
        served(tmp_path, source, settings=settings(read_seconds=0.5)) as server,
        asked(server, speech(text=TEXT * 10)),
    ):
        until(lambda: errors(server, "stalled") == 1)
        until(lambda: gate.release() or "leave one" in source.log)
        assert source.log.count("step one") < 200


def test_other_answers_are_watched_as_well(tmp_path) -> None:
    items = [{"input": TEXT, "response_format": "wav"}] * 2
    with served(tmp_path, settings=settings(read_seconds=0.5)) as server:
        server.post(input="one")
        files = psutil.Process().num_fds()
        with asked(server, {"items": items}, "/v1/audio/speech/batch"):
            until(lambda: errors(server, "stalled") == 1)
        until(lambda: psutil.Process().num_fds() <= files)


def test_a_batch_is_cut_off_when_its_time_is_over(tmp_path) -> None:
    items = [{"input": TEXT, "response_format": "wav"}] * 2
    with (
        served(tmp_path, settings=settings(request_seconds=1)) as server,
        asked(server, {"items": items}, "/v1/audio/speech/batch") as slow,
    ):
        assert 4096 < len(read(slow, 4096, 0.02)) < 1_000_000
        until(lambda: errors(server, "timeout") == 1)


def test_an_answer_is_read_longer_than_a_next_request_may_take(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last megabyte is written at once; a client that takes its time for it is not one that is idle."""
    monkeypatch.setattr(protocols, "HEAD_SECONDS", 0.2)
    pcm = {"kind": "audio/pcm;rate=1000;channels=1", "buffer": 1 << 16, "connection": "keep-alive"}
    path = "/v1/audio/encode?response_format=wav"
    with served(tmp_path) as server, asked(server, bytes(1_000_000), path, **pcm) as slow:
        assert len(read(slow, 1 << 16, 0.05).partition(b"\r\n\r\n")[2]) == 44 + 1_000_000
