"""Bytes on the wire that a proxy may read as another request: refused, and the connection is closed."""

from __future__ import annotations

import logging
import socket

import pytest

from mlx_port.commands.serve.live import protocols
from tests.mlx_port.commands.serve.live.client import PATH, raw
from tests.mlx_port.commands.serve.served import SOON, Served

HOST = b"Host: localhost\r\n"
NEXT = b"GET /health HTTP/1.1\r\n" + HOST + b"\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
UPGRADE = (
    f"GET {PATH} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
).encode()


def answer(server: Served, *sent: bytes) -> bytes:
    """Send bytes, each after some of the answer to those before, and take all up to the close."""
    got = b""
    with raw(server) as found:
        for data in sent[:-1]:
            found.sendall(data)
            got += found.recv(1 << 16)
        found.sendall(sent[-1])
        while data := received(found):
            got += data
    return got


def received(found: socket.socket) -> bytes:
    try:
        return found.recv(1 << 16)
    except ConnectionResetError:  # a close before all was read
        return b""


@pytest.mark.parametrize(
    "request_",
    [
        b"POST /v1/audio/speech HTTP/1.1\r\n" + HOST + b"Content-Length: 5\r\n" + CHUNKED + b"\r\n0\r\n\r\n",
        b"POST /v1/audio/speech HTTP/1.0\r\n" + HOST + CHUNKED + b"\r\n0\r\n\r\n",
        b"GET /health HTTP/1.1\r\n" + HOST + b"X-A: b\r\n c\r\n\r\n",
        b"GET /health HTTP/1.1\r\n" + HOST + b"X-A: b\r\n\tContent-Length: 9\r\n\r\n",
        b"GET /health HTTP/1.1\r\n" + HOST + b"X-A: b\nX-C: d\r\n\r\n",
        b"GET /health HTTP/1.1\n" + HOST + b"\r\n",
        b"GET /health HTTP/1.1\r\n" + HOST + b"\n",
        b"GET /health HTTP/1.1\nHost: localhost\n\n",
        b"POST /v1/audio/speech HTTP/1.1\r\n" + HOST + CHUNKED + b"\r\n0\r\nX-A: b\n\n",
        b"POST /v1/audio/speech HTTP/1.1\r\n" + HOST + CHUNKED + b"\r\n0\r\n\n",
        UPGRADE + b"Content-Length: 5\r\n\r\nhello",
        UPGRADE + CHUNKED + b"\r\n0\r\n\r\n",
    ],
)
def test_a_request_with_two_readings(
    shared: Served, request_: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing after it is read as a request."""
    got = answer(shared, request_ + NEXT)
    assert got.startswith(b"HTTP/1.1 400 ")
    assert got.count(b"HTTP/1.1") == 1
    assert b"connection: close" in got.lower()
    assert not [record for record in caplog.records if record.exc_info or record.name == "asyncio"]


def test_plain_requests_follow_one_another(shared: Served) -> None:
    """Also with a chunked body and its trailer, and byte by byte."""
    chunked = b"POST /health HTTP/1.1\r\n" + HOST + CHUNKED + b"\r\n1\r\nx\r\n0\r\nX-A: b\r\n\r\n"
    with raw(shared) as found:
        for byte in NEXT + NEXT:
            found.sendall(bytes([byte]))
        got = b""
        while got.count(b'"status":"ok"') < 2:
            got += found.recv(1 << 16)
    assert answer(shared, NEXT, chunked).count(b"HTTP/1.1") == 2


def test_a_body_that_breaks_after_its_answer_has_begun(
    shared: Served, caplog: pytest.LogCaptureFixture
) -> None:
    """The rest of a body that nobody needs is still read; what is no chunk closes without a traceback."""
    head = b"POST /nope HTTP/1.1\r\n" + HOST + CHUNKED + b"\r\n5\r\n{"
    with caplog.at_level(logging.INFO):
        assert answer(shared, head, b"abcdefgh").count(b"HTTP/1.1") == 1
    assert not [record for record in caplog.records if record.exc_info or record.name == "asyncio"]


@pytest.mark.parametrize("frames", [b"\x81\x82\0\0\0\0\xff\xfe", b"\x01\x81\0\0\0\0\xc3\x80\x81\0\0\0\0\xc3"])
def test_a_text_that_is_not_utf_8(shared: Served, frames: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """It closes its WebSocket with 1007, without a traceback in the log."""
    with caplog.at_level(logging.INFO):
        got = answer(shared, UPGRADE + b"\r\n", frames)
    assert got.endswith(b"\x88\x0b\x03\xefnot UTF-8")
    assert not [record for record in caplog.records if record.exc_info or record.levelno >= logging.ERROR]


def test_half_a_body_is_closed_as_half_a_head_is(shared: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """And its route is left; while more of a body arrives it is waited for."""
    monkeypatch.setattr(protocols, "HEAD_SECONDS", 0.4)
    for path in ("/v1/audio/speech", "/nope"):
        post = f"POST {path} HTTP/1.1\r\nHost: localhost\r\n".encode()
        for body in (b"Content-Length: 20\r\n\r\n{", CHUNKED + b"\r\n5\r\n{"):
            got = answer(shared, post + body)
            assert (got == b"") == (path != "/nope")
    head = b"POST /v1/audio/speech HTTP/1.1\r\nContent-Length: 16\r\n" + HOST + b"\r\n"
    with raw(shared) as found:
        found.settimeout(SOON)
        found.sendall(head)
        for byte in b'{"input": "one"}':
            found.sendall(bytes([byte]))
        assert found.recv(100).startswith(b"HTTP/1.1 200")
