"""Bodies that are too large, have too many fields or never end, of clients that send all before they read."""

from __future__ import annotations

import json
import logging
import re
import time
import urllib.error
import urllib.request
from typing import Any

import httpx
import pytest

from mlx_port.commands.serve import rest
from mlx_port.commands.serve.settings import Access, Limits, Settings
from tests.mlx_port.commands.serve.live.client import raw
from tests.mlx_port.commands.serve.served import SOON, Served, error_of, served, until

JSON = {"content-type": "application/json"}
SPEECH = "/v1/audio/speech"


def sent_whole(url: str, data: bytes, **headers: str) -> tuple[int, dict[str, Any]]:
    """Post with urllib, which sends all before it reads. Returns status and JSON."""
    asked = urllib.request.Request(url, data, {**JSON, **headers})
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(asked, timeout=SOON)
    with caught.value as answer:
        return answer.code, json.loads(answer.read())


@pytest.mark.parametrize("megabytes", [3, 40])
def test_a_client_that_sends_all_before_it_reads_sees_the_413(server: Served, megabytes: int) -> None:
    status, answer = sent_whole(server.url + SPEECH, b" " * (megabytes << 20))
    assert (status, answer["error"]["code"]) == (413, "too_large")


def test_a_form_that_is_too_large_is_answered_too(tmp_path) -> None:
    with served(tmp_path, settings=Settings(limits=Limits(upload=10_000))) as server:
        kind = {"content-type": "multipart/form-data; boundary=x"}
        status, answer = sent_whole(server.url + "/v1/audio/voices", b" " * (8 << 20), **kind)
        assert (status, answer["error"]["code"]) == (413, "too_large")


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [(SPEECH, {}, 401), (SPEECH, {"origin": "http://evil.example"}, 403), ("/v1/nothing", {}, 401)],
)
def test_a_large_body_that_is_refused_unread_gets_its_answer(
    tmp_path, path: str, headers: dict[str, str], status: int
) -> None:
    with served(tmp_path, settings=Settings(access=Access(api_key="secret"))) as server:
        assert sent_whole(server.url + path, b" " * (8 << 20), **headers)[0] == status


def head(length: int, *more: str) -> bytes:
    lines = [f"POST {SPEECH} HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json", *more]
    return "\r\n".join([*lines, f"Content-Length: {length}", "", ""]).encode()


def test_the_answer_comes_before_the_body_has(server: Served) -> None:
    """At once; then bytes are dropped, up to a bound, and the connection is closed."""
    with raw(server) as client:
        client.sendall(head(50 << 20))
        assert client.recv(1 << 16).startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize(("most", "seconds"), [(1 << 16, SOON), (1 << 40, 0.2)])
def test_not_more_than_a_bound_is_dropped(
    server: Served, monkeypatch: pytest.MonkeyPatch, most: int, seconds: float
) -> None:
    """Of bytes, and of seconds."""
    monkeypatch.setattr(rest, "MOST", most)
    monkeypatch.setattr(rest, "SECONDS", seconds)
    with raw(server) as client:
        client.sendall(head(1 << 40))
        client.settimeout(SOON)

        def is_closed() -> bool:
            try:
                client.sendall(b" " * 10_000)
            except OSError:
                return True
            return False

        until(is_closed)


def test_a_client_that_waits_for_100_is_not_waited_for(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rest, "SECONDS", SOON)
    with raw(server) as client:
        client.sendall(head(50 << 20, "Expect: 100-continue"))
        answer = b"".join(iter(lambda: client.recv(1 << 16), b""))
    assert answer.startswith(b"HTTP/1.1 413")
    assert b"HTTP/1.1 100" not in answer


def test_a_connection_goes_on_after_a_refusal_of_a_whole_body(server: Served) -> None:
    with httpx.Client(timeout=SOON) as client:
        for _ in range(2):
            answer = client.post(server.url + SPEECH, json={"input": ""})
            assert (answer.status_code, answer.headers.get("connection")) == (400, None)


@pytest.mark.parametrize("path", [SPEECH, SPEECH + "/batch", "/v1/audio/captions"])
def test_a_lone_surrogate_in_a_fields_name(strict: Served, path: str) -> None:
    answer = httpx.post(
        strict.url + path, content=b'{"\\ud800x": 1, "input": "a"}', headers=JSON, timeout=SOON
    )
    error = error_of(answer)
    assert (answer.status_code, error["code"]) == (400, "unknown_field")
    assert error["param"] == r"\ud800x"


@pytest.mark.parametrize("path", [SPEECH, SPEECH + "/batch", "/v1/audio/captions"])
@pytest.mark.parametrize("letter", ["x", "\u200b"])
def test_a_long_name_is_cut(strict: Served, path: str, letter: str) -> None:
    content = json.dumps({letter * (300_000): 1, "input": "a"}).encode()
    answer = httpx.post(strict.url + path, content=content, headers=JSON, timeout=SOON)
    error = error_of(answer)
    assert answer.status_code == 400
    assert len(answer.content) < 3000
    assert error["message"].startswith(error["param"][:40])


@pytest.mark.parametrize("count", [65, 150_000])
def test_too_many_fields(shared: Served, count: int) -> None:
    """Anywhere in the body; nothing is compared with their names."""
    fields = {f"f{number}": 1 for number in range(count)}
    for body in ({"input": "a", **fields}, {"input": "a", "voice": fields}, {"items": [fields]}):
        content = json.dumps(body).encode()
        answer = httpx.post(shared.url + SPEECH, content=content, headers=JSON, timeout=SOON)
        assert answer.status_code == (400 if len(content) < 2 << 20 else 413)
        if answer.status_code == 400:
            assert "at most 64 are taken" in error_of(answer)["message"]
            assert len(answer.content) < 500


def test_64_fields_are_looked_at(strict: Served) -> None:
    fields = {f"f{number}": 1 for number in range(63)}
    answer = httpx.post(strict.url + SPEECH, json={"input": "a", **fields}, timeout=SOON)
    assert error_of(answer)["message"].startswith("f0: no such field; there is input, model")


def test_warnings_are_few_and_short(shared: Served) -> None:
    """Whatever the fields' names are: a header is ASCII, in quotes."""
    fields = {**{f"f{number}": 1 for number in range(60)}, "\u200b": 1, 'a"b\\c\r\nd': 1, "x" * 300_000: 1}
    named = dict(reversed(fields.items()))
    answer = httpx.post(shared.url + SPEECH, json={"input": "a", **named}, timeout=SOON)
    warnings = answer.headers.get_list("warning")
    assert (answer.status_code, len(warnings)) == (200, 9)
    assert all(re.fullmatch(r'299 mlx-port "([\x20-\x7e]*)"', one) and len(one) < 200 for one in warnings)
    assert warnings[1].startswith(r'299 mlx-port "a\"b\\c')
    assert warnings[3] == '299 mlx-port "f59: no such field; ignored"'
    assert warnings[8] == '299 mlx-port "55 more fields are ignored"'


@pytest.mark.parametrize("path", [SPEECH, "/v1/audio/voices", "/v1/audio/encode"])
def test_a_client_that_leaves_in_the_middle_of_its_body(
    server: Served, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    """One line in the log, no error."""
    kinds = {
        "/v1/audio/voices": "multipart/form-data; boundary=x",
        "/v1/audio/encode": "audio/pcm;rate=8000;channels=1",
    }
    with caplog.at_level(logging.INFO):
        with raw(server) as client:
            asked = head(5000).replace(SPEECH.encode(), path.encode(), 1)
            client.sendall(asked.replace(b"application/json", kinds.get(path, "application/json").encode()))
            client.sendall(b'{"input": ')
            time.sleep(0.1)
        until(lambda: any(path in record.getMessage() for record in caplog.records))
    assert [record for record in caplog.records if record.exc_info or record.levelno >= logging.ERROR] == []
    [line] = [record.getMessage() for record in caplog.records if path in record.getMessage()]
    assert line.startswith(f"POST {path} 499 in ")
    assert server.post(input="one").status_code == 200
    assert server.figure("mlx_port_errors_total") == 0


def test_the_bounds_are_those_of_the_documents() -> None:
    assert (rest.MOST, rest.SECONDS) == (64 << 20, 5.0)
    assert Limits().body == 2 << 20
