"""Clients that stand still, read slowly, flood or send too much harm nobody, and are dropped."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from websockets.exceptions import ConnectionClosed

from mlx_port.commands.serve.live import protocols
from mlx_port.commands.serve.settings import Limits, Settings
from tests.mlx_port.commands.serve.live.client import PATH, client, raw, said
from tests.mlx_port.commands.serve.served import Talk, served, until

pytestmark = pytest.mark.rest

HANDSHAKE = (
    f"GET {PATH} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
).encode()


def shake_hands(one: socket.socket) -> None:
    """Open a WebSocket; what is sent before the answer is lost."""
    one.sendall(HANDSHAKE)
    assert one.recv(1 << 16).startswith(b"HTTP/1.1 101")


def frame(text: str) -> bytes:
    """A masked text frame of less than 64 KiB."""
    data = text.encode()
    size = bytes([128 + len(data)]) if len(data) < 126 else bytes([254]) + len(data).to_bytes(2, "big")
    return b"\x81" + size + b"\0\0\0\0" + data


def test_half_open_sockets_are_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a head, with half of one, with a handshake and nothing after it, and with half a frame."""
    monkeypatch.setattr(protocols, "HEAD_SECONDS", 0.3)
    monkeypatch.setattr(protocols, "LINGER_SECONDS", 1.5)
    settings = Settings(limits=Limits(start_seconds=1))
    with served(tmp_path, settings=settings) as server:
        server.post(input="one")
        files = psutil.Process().num_fds()
        for begin in (b"", b"GET / HT", HANDSHAKE, frame('{"type": "start"}')[:5]):
            with raw(server) as found:
                if begin.startswith(b"\x81"):
                    shake_hands(found)
                found.sendall(begin)
                while found.recv(1 << 16):
                    pass
        assert said(server, "one two three").events[-1]["type"] == "done"
        until(lambda: psutil.Process().num_fds() <= files)
        until(lambda: server.figure("mlx_port_live_connections") == 0)


def test_a_client_that_does_not_read_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its text is not spoken ahead for ever, others are served, and its socket is closed."""
    monkeypatch.setattr(protocols, "LINGER_SECONDS", 1.0)
    text = "These are some words to be spoken here. " * 100
    source = Talk()
    settings = Settings(limits=Limits(stall_seconds=0.5, ahead_seconds=5))
    with served(tmp_path, source, settings=settings) as server, raw(server) as slow:
        files = psutil.Process().num_fds()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        shake_hands(slow)
        slow.sendall(frame('{"type": "start"}'))
        slow.sendall(frame(json.dumps({"type": "text", "text": text})) + frame('{"type": "end"}'))
        stalled = 'mlx_port_live_total{kind="websocket",outcome="stalled"}'
        until(lambda: server.figure(stalled) == 1)
        until(lambda: server.service.engine.statistics().running == 0)
        assert len(source.asked) < 100, "the text is read no further than the listener"
        assert said(server, "one two three").events[-1]["type"] == "done"
        until(lambda: psutil.Process().num_fds() <= files)


def test_a_reader_that_waits_and_then_reads_gets_all_of_it(tmp_path: Path) -> None:
    """Text that was held back for it is spoken when it reads again."""
    settings = Settings(limits=Limits(ahead_seconds=1, text=100_000))
    text = "Some ten words are spoken in each of these sentences. " * 40
    with served(tmp_path, settings=settings) as server, client(server) as found:
        found.send("start")
        found.send("text", text=text)
        found.send("end")
        until(lambda: server.service.engine.statistics().steps > 10)
        time.sleep(0.5)
        found.end()
        assert found.events[-1]["type"] == "done"
        assert len([event for event in found.events if event["type"] == "piece"]) == 40


def test_megabytes(tmp_path: Path) -> None:
    """They are refused by size, before they are read; also as fragments of one message."""
    with served(tmp_path) as server:
        memory = psutil.Process().memory_info().rss
        for size in (1 << 20, 64 << 20):
            with client(server) as found:
                found.send("start")
                with suppress(ConnectionClosed):
                    found.connection.send('{"type": "text", "text": "' + "x" * size + '"}')
                found.end()
                assert found.code in (1009, None)
        with client(server) as found:
            with suppress(ConnectionClosed):
                found.connection.send("x" * 1000 for _ in range(2000))
            found.end()
            assert found.code in (1009, None)
        assert psutil.Process().memory_info().rss < memory + (192 << 20), (
            "the client's own copies are here, too"
        )
        assert said(server, "one two three").events[-1]["type"] == "done"


def test_floods(tmp_path: Path) -> None:
    """Of empty texts, of pings, of connections."""
    with served(tmp_path, settings=Settings(limits=Limits(message_rate=50))) as server:
        with client(server) as found:
            found.send("start")
            with suppress(ConnectionClosed):
                for _ in range(2000):
                    found.send("text", text="")
            found.end()
            assert found.code in (1013, None)
            if found.code:
                assert found.events[-1]["error"]["code"] == "too_many_messages"
        with client(server) as found:
            for place in range(500):
                found.connection.ping(str(place))
            found.send("start")
            found.send("text", text="one two three")
            found.send("end")
            found.end()
            assert found.events[-1]["type"] == "done"
        for _ in range(100):
            raw_socket = socket.create_connection(server.server.servers[0].sockets[0].getsockname()[:2])
            raw_socket.sendall(HANDSHAKE)
            raw_socket.close()
        until(lambda: server.figure("mlx_port_live_connections") == 0)
        assert said(server, "one two three").events[-1]["type"] == "done"


def test_random_bytes_after_the_handshake(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        for size in (1, 3, 100, 10_000):
            with raw(server) as found:
                shake_hands(found)
                found.sendall(os.urandom(size))
        until(lambda: server.figure("mlx_port_live_connections") == 0)
        assert said(server, "one two three").events[-1]["type"] == "done"


def test_closing_lets_a_speech_end_and_sends_others_away(tmp_path: Path) -> None:
    gate = threading.Semaphore(0)
    source = Talk(gate=gate)
    with served(tmp_path, source) as server, client(server) as speaking, client(server) as silent:
        speaking.send("start")
        speaking.send("text", text="one two three four five. S")
        until(lambda: "join one" in source.log)
        server.server.should_exit = True
        silent.end()
        assert silent.code == 1001
        gate.release(1000)
        speaking.send("text", text="ix seven.")
        speaking.send("end")
        speaking.end()
        assert (speaking.events[-1], speaking.code) == ({"type": "done", "finish_reason": "stop"}, 1000)
