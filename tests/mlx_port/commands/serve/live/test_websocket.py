"""WS /v1/audio/speech/stream with a real client: sentences are spoken before the text ends."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from mlx_port.commands.serve.metrics import Metrics
from mlx_port.commands.serve.settings import Access, Limits, Settings
from tests.mlx_port.commands.serve.live.client import PATH, Client, client, said
from tests.mlx_port.commands.serve.served import SOON, Served, Talk, filled, of_letters, served, until
from tests.tts_core.serving import talkers
from tts_core.audio.formats.names import FORMATS
from tts_core.audio.formats.writer import StreamEncoder
from tts_core.audio.splicing import splice

FIRST, SECOND = "one two three four five.", "Six seven eight nine ten."
LONG = "Word after word it goes on. " * 30


def expected(*sentences: str) -> bytes:
    """The sound of sentences that are spoken one after the other."""
    waves = [np.concatenate([talkers.sound(word) for word in one.split()]) for one in sentences]
    encoder = StreamEncoder(FORMATS["pcm"], talkers.RATE, rate=24000)
    return encoder.add(splice(waves, talkers.RATE)) + encoder.finish()


def heard(found: bytes, wanted: bytes) -> None:
    """Require equal sound, but for the rounding of a resampler that is fed otherwise."""
    assert len(found) == len(wanted)
    off = np.frombuffer(found, "<i2").astype(int) - np.frombuffer(wanted, "<i2")
    assert np.abs(off).max() <= 1


def test_the_first_sentence_is_heard_before_the_text_ends(server: Served) -> None:
    with client(server) as found:
        found.send("start", voice="nova", seed=7)
        assert found.hear() == {"type": "started", "sample_rate": 24000, "seed": 7}
        for fragment in ("one two ", "three fo", "ur five", ". S"):
            found.send("text", text=fragment)
        first = found.hear()
        assert first == {"type": "piece", "text": FIRST, "start": 0, "end": 1.25}
        assert len(found.sound) > 0.7 * 24000 * 2  # the resampler needs some more to go on
        found.send("text", text="ix seven eight nine ten.")
        found.send("end")
        found.end()
    assert [event["type"] for event in found.events] == ["started", "piece", "piece", "done"]
    assert (found.events[-1]["finish_reason"], found.code) == ("stop", 1000)
    assert found.events[2] == {"type": "piece", "text": SECOND, "start": 1.45, "end": 2.7}
    heard(found.sound, expected(FIRST, SECOND))
    assert server.figure('mlx_port_live_total{kind="websocket",outcome="stop"}') == 1
    until(lambda: server.figure('mlx_port_live_connections{kind="websocket"}') == 0)


def test_a_connection_that_ends_before_anybody_knows_how_has_failed() -> None:
    metrics = Metrics()
    with pytest.raises(ZeroDivisionError), metrics.live.open("websocket"):
        raise ZeroDivisionError
    text = metrics.text().decode()
    assert 'mlx_port_live_total{kind="websocket",outcome="failed"} 1.0' in text
    assert 'mlx_port_live_connections{kind="websocket"} 0.0' in text


def test_a_model_that_reads_while_it_speaks_does_not_wait_for_sentences(tmp_path: Path) -> None:
    """Whole words are passed on as they come."""
    with served(tmp_path, Fed()) as server, client(server) as found:
        found.send("start", seed=1)
        found.send("text", text="one two three four five six seven eight ni")
        found.listen(1)
        found.send("text", text="ne ten")
        found.send("end")
        found.end()
    assert found.events[-1]["type"] == "done"
    heard(found.sound, expected("one two three four five six seven eight nine ten"))


class Fed(Talk):
    """A model that takes words while it speaks."""

    fed = True
    live: Any = Talk.request


def test_a_seed_is_told_and_used(server: Served) -> None:
    first = said(server, FIRST)
    assert first.events[0]["seed"] == said(server, FIRST).events[0]["seed"], "a voice's name is steady"


BAD: list[tuple[Any, str | None, int]] = [
    ("{", None, 1008),
    ("[]", None, 1008),
    ('{"type": "start", "type": "start"}', None, 1008),
    ('{"type": "start", "speed": NaN}', None, 1008),
    ("[" * 5000, None, 1008),
    (b"bytes", None, 1008),
    ("x" * 70_000, None, 1009),
    ({}, "type", 1008),
    ({"type": "strat"}, "type", 1008),
    ({"type": 5}, "type", 1008),
    ({"type": "text", "text": "early"}, "type", 1008),
    ({"type": "end"}, "type", 1008),
    ({"type": "cancel"}, "type", 1008),
    ({"type": "start", "input": "text"}, "input", 1008),
    ({"type": "start", "response_format": "mp3"}, "response_format", 1008),
    ({"type": "start", "stream_format": "sse"}, "stream_format", 1008),
    ({"type": "start", "stream": False}, "stream", 1008),
    ({"type": "start", "voice": "nobody"}, "voice", 1008),
    ({"type": "start", "temperature": -1}, "temperature", 1008),
    ({"type": "start", "max_seconds": 10_000}, "max_seconds", 1008),
]


@pytest.mark.parametrize(("message", "param", "code"), BAD, ids=[str(one[0])[:40] for one in BAD])
def test_a_bad_start(shared: Served, message: Any, param: str | None, code: int) -> None:
    """One error in the API's schema, then a close; nothing was queued."""
    import json

    errors = shared.figure("mlx_port_errors_total")
    with client(shared) as found:
        found.connection.send(json.dumps(message) if isinstance(message, dict) else message)
        found.end()
    [error] = found.events
    assert error["type"] == "error"
    assert set(error["error"]) == {"message", "type", "param", "code"}
    assert (error["error"]["param"], found.code) == (param, code)
    assert shared.service.engine.statistics().outcomes == {}
    assert shared.figure("mlx_port_errors_total") == errors + 1


LATE: list[tuple[list[dict[str, Any]], str]] = [
    ([{"type": "text"}], "text: missing"),
    ([{"type": "text", "text": 5}], "text: not a string"),
    ([{"type": "text", "text": "a", "txt": 1}], "txt: no such field; did you mean text?"),
    ([{"type": "end", "now": True}], "now: no such field; there is type"),
    ([{"type": "start"}], "start again"),
    ([{"type": "end"}], "no words in it"),
    ([{"type": "text", "text": " ... "}, {"type": "end"}], "no words in it"),
    ([{"type": "text", "text": LONG}, {"type": "end"}, {"type": "text", "text": "more"}], "it has ended"),
    ([{"type": "text", "text": "x" * 5000}], "more than 4096 characters"),
    ([{"type": "text", "text": "word " * 500}] * 2, "more than 4096 characters"),
    ([{"type": "text", "text": "a \x00 b. And more"}, {"type": "end"}], "control character"),
    ([{"type": "text", "text": "Words and a choke for us."}, {"type": "end"}], ""),
]


@pytest.mark.parametrize(("messages", "words"), LATE, ids=[one[1] or "choke" for one in LATE])
def test_bad_messages_after_the_start(tmp_path: Path, messages: list[dict[str, Any]], words: str) -> None:
    gate = threading.Semaphore(0)
    with served(tmp_path, Talk(gate=gate)) as server, client(server) as found:
        found.send("start")
        for message in messages:
            with suppress(ConnectionClosed):
                found.send(message["type"], **{name: one for name, one in message.items() if name != "type"})
        if not words or "words" in words or "control" in words:
            gate.release(1000)
        found.end()
        error = found.events[-1]
        if words:
            assert error["type"] == "error"
            assert words in error["error"]["message"]
            assert found.code == 1008
            code = error["error"]["code"]
            assert server.figure(f'mlx_port_errors_total{{code="{code}"}}') == 1
        gate.release(1000)
        until(lambda: server.service.engine.statistics().running == 0)


def test_cancel_frees_the_place(tmp_path: Path) -> None:
    gate = threading.Semaphore(0)
    source = Talk(gate=gate)
    with served(tmp_path, source) as server, client(server) as found:
        found.send("start")
        found.send("text", text=f"{FIRST} {SECOND}")
        gate.release(4)
        found.listen(1)
        found.send("cancel")
        gate.release(1)
        found.end()
        assert (found.events[-1], found.code) == ({"type": "done", "finish_reason": "cancelled"}, 1000)
        until(lambda: gate.release() or "leave one" in source.log)
        until(lambda: server.service.engine.statistics().running == 0)


@pytest.mark.parametrize("moment", ["connected", "started", "waiting", "speaking", "ended"])
def test_a_client_that_leaves_frees_its_place(tmp_path: Path, moment: str) -> None:
    gate = threading.Semaphore(0)
    source = Talk(gate=gate)
    with served(tmp_path, source) as server:
        with client(server) as found:
            if moment != "connected":
                found.send("start")
                assert found.hear() is not None
            if moment in ("speaking", "ended"):
                found.send("text", text=f"{FIRST} {SECOND}")
                until(lambda: "join one" in source.log)
            if moment == "waiting":
                found.send("text", text="one tw")
            if moment == "ended":
                found.send("end")
            found.connection.socket.shutdown(socket.SHUT_RDWR)  # close would wait for the thread that reads
        left = 'mlx_port_live_total{kind="websocket",outcome="left"}'
        until(lambda: server.figure(left) == 1)
        gate.release(1000)
        until(lambda: server.service.engine.statistics().running == 0)


KEY = "a long random word"


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path, settings=Settings(access=Access(api_key=KEY))) as found:
        yield found


def test_a_key_in_the_start_or_in_a_header(locked: Served) -> None:
    assert said(locked, FIRST, api_key=KEY).events[-1]["type"] == "done"
    with client(locked, {"authorization": f"Bearer {KEY}"}) as found:
        found.send("start")
        assert found.hear() is not None
    for wrong in (None, "", "x", 5, KEY + " ", "ä", "\ud800"):
        found = Client.__new__(Client)
        with client(locked) as found:
            found.send("start", **({} if wrong is None else {"api_key": wrong}))
            found.end()
        assert (found.events[0]["error"]["type"], found.code) == ("authentication_error", 1008)
        assert len(found.events) == 1
    with pytest.raises(InvalidStatus) as refused, client(locked, {"authorization": "Bearer wrong"}):
        pass
    assert refused.value.response.status_code == 401


@pytest.mark.parametrize(
    "headers", [{"origin": "https://evil.example"}, {"origin": "null"}, {"host": "evil.example"}], ids=str
)
def test_pages_of_other_sites_and_names(server: Served, headers: dict[str, str]) -> None:
    """Before the handshake, as for every other route."""
    asked = {"upgrade": "websocket", "connection": "Upgrade", "sec-websocket-version": "13"}
    asked |= {"sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==", **headers}
    answer = httpx.get(server.url + PATH, headers=asked, timeout=SOON)
    assert answer.status_code == 403
    assert answer.json()["error"]["code"].endswith("_refused")
    assert answer.headers["x-request-id"].startswith("req_")


def test_the_page_of_the_server_itself(server: Served) -> None:
    with client(server, {"origin": server.url}) as found:
        found.send("start")
        assert found.hear() is not None


def test_other_paths_are_refused(server: Served) -> None:
    with pytest.raises(InvalidStatus), client(server.url + "/no"):
        pass


def test_limits(tmp_path: Path) -> None:
    """Each limit of time has a server of its own: what it does not concern may take any time."""

    def limited(source: Talk | None = None, **limits: Any) -> AbstractContextManager[Served]:
        return served(tmp_path / "-".join(limits), source, settings=Settings(limits=Limits(**limits)))

    with limited(start_seconds=0.3) as server, client(server) as found:
        found.end()
        assert (found.events[0]["error"]["code"], found.code) == ("timeout", 1008)
    with limited(idle_seconds=0.3) as server, client(server) as found:
        found.send("start")
        found.send("text", text="one t")
        found.end()
        assert found.events[-1]["error"]["message"].startswith("message: none within 0.3 s")
    with limited(text=100, audio_seconds=1.0) as server:
        assert said(server, f"{FIRST} {SECOND}").events[-1]["error"]["code"] == "too_long"
    with limited(Talk(gate=threading.Semaphore(0)), request_seconds=1.0) as server:
        found = said(server, FIRST)
        assert (found.events[-1]["error"]["code"], found.code) == ("timeout", 1013)


def test_a_full_queue_and_too_many_connections(tmp_path: Path) -> None:
    gate = threading.Semaphore(0)
    settings, source = Settings(max_queue=1, places=1, limits=Limits(sockets=1)), Talk(gate=gate)
    with served(tmp_path, source, settings=settings) as server:
        filled(server, source)
        found = said(server, FIRST)
        assert (found.events[-1]["error"]["code"], found.code) == ("queue_full", 1013)
        until(lambda: server.figure("mlx_port_live_connections") == 0)
        with client(server), pytest.raises(InvalidStatus) as refused, client(server):
            pass
        assert refused.value.response.status_code == 429


def test_a_text_is_cut_anywhere_also_inside_a_letter(tmp_path: Path) -> None:
    """Of an emoji JSON has two halves; one without the other is refused."""
    source = Talk()
    with served(tmp_path, source, settings=Settings(limits=Limits(text=9))) as server:
        whole = said(server, "one \N{PARTY POPPER} two", seed=1)
        cut = said(server, "one \ud83c", "\udf89 two", seed=1)
        assert whole.sound == cut.sound != b""
        assert cut.events == whole.events
        assert said(server, "\ud83c", "", "\udf89 a", seed=1).events[-1]["type"] == "done"
        for texts in (
            ("one \ud83c",),
            ("one \ud83c", "two"),
            ("one \udf89",),
            ("one \ud83c", "\ud83c\udf89"),
        ):
            assert "control character" in said(server, *texts).events[-1]["error"]["message"]
        assert (
            said(server, "one \ud83c", "\udf89 three").events[-1]["error"]["message"].startswith("text: more")
        )


@pytest.mark.parametrize("start", [{}, {"skip_unknown": False}])
def test_a_server_that_leaves_out_unknown_letters(tmp_path: Path, start: dict[str, Any]) -> None:
    """At every door, unless the client says what it wants."""
    source, given = of_letters("abcdefghijklmnopqrstuvwxyz"), "one \u6771 \N{PARTY POPPER} two."
    with served(tmp_path, source, settings=Settings(skip_unknown=True)) as server:
        assert server.post(input=given, **start).status_code == 200
        assert said(server, given, **start).events[-1]["type"] == "done"
        assert server.post("/v1/audio/speech/batch", items=[{"input": given, **start}]).status_code == 200
    texts = [" ".join(text.split()) for text, *_ in source.asked if text != "Yes."]
    assert texts == [given if start else "one two."] * 3
