"""The Wyoming port with Wyoming's own client and types, as Home Assistant uses it."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from wyoming.client import AsyncTcpClient
from wyoming.error import Error
from wyoming.event import Event
from wyoming.ping import Ping, Pong
from wyoming.tts import Synthesize, SynthesizeChunk, SynthesizeStart, SynthesizeStop, SynthesizeVoice

from mlx_port.commands.serve.settings import Limits, Settings
from tests.mlx_port.commands.serve.live.test_websocket import expected, heard
from tests.mlx_port.commands.serve.served import SOON, Served, Talk, of_letters, recording, until
from tests.mlx_port.commands.serve.wyoming.asking import (
    address,
    answered,
    asked,
    described,
    sound,
    until_type,
    wyoming_server,
)

FIRST, SECOND = "one two three four five.", "Six seven eight nine ten."


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory):
    with wyoming_server(tmp_path_factory.mktemp("shared") / "voices") as found:
        yield found


@pytest.fixture
def server(tmp_path: Path):
    with wyoming_server(tmp_path / "voices") as found:
        yield found


def test_describe_is_valid(tmp_path: Path) -> None:
    """By the package's types: a program that streams, voices of every model with their languages."""
    sources = {"talk": Talk(), "clone": Talk("mars5")}
    with wyoming_server(tmp_path / "voices", sources) as server:
        server.service.voices.add("anna", [recording()], ["Twenty characters it is."], "yes")
        info = described(server)
    [program] = info.tts
    assert (program.name, program.installed, program.supports_synthesize_streaming) == (
        "mlx-port",
        True,
        True,
    )
    assert program.attribution.url.startswith("https://")
    names = [voice.name for voice in program.voices]
    assert names[:2] == ["anna", "alloy"]
    assert "clone/anna" in names
    assert "clone/alloy" not in names, "it needs a recording"
    assert all(voice.languages == ["en"] and voice.installed for voice in program.voices)
    assert [*info.asr, *info.wake, *info.intent, *info.handle] == []


def test_synthesize(server: Served) -> None:
    asking = Synthesize(text=f"{FIRST} {SECOND}", voice=SynthesizeVoice(name="nova"))
    found = answered(server, asking.event(), end="audio-stop")
    assert [found[0].type, found[1].type, found[-1].type] == ["audio-start", "audio-chunk", "audio-stop"]
    assert len(sound(found)) == 2 * 24 * 250 * 10
    until(lambda: server.figure('mlx_port_live_total{kind="wyoming",outcome="left"}') == 1)
    assert server.figure("mlx_port_requests_total") == 1


def test_text_that_streams_in_as_from_home_assistant(server: Served) -> None:
    """The first sentence is heard before the text ends; the whole, for older servers, is skipped."""

    async def speak(client: AsyncTcpClient) -> list[Event]:
        await client.write_event(SynthesizeStart(voice=SynthesizeVoice(name="nova")).event())
        for text in ("one two three ", "four five. Six"):
            await client.write_event(SynthesizeChunk(text=text).event())
        found = [await client.read_event() for _ in range(2)]
        await client.write_event(SynthesizeChunk(text=" seven eight nine ten.").event())
        await client.write_event(Synthesize(text=f"{FIRST} {SECOND}").event())
        await client.write_event(SynthesizeStop().event())
        rest = await until_type(client, "synthesize-stopped")
        return [event for event in (*found, *rest) if event is not None]

    found = asked(server, speak)
    assert [event.type for event in found[:2]] == ["audio-start", "audio-chunk"]
    assert [event.type for event in found[-2:]] == ["audio-stop", "synthesize-stopped"]
    heard(sound(found), expected(FIRST, SECOND))


def test_several_speeches_of_one_connection(server: Served) -> None:
    async def speak(client: AsyncTcpClient) -> list[int]:
        lengths = []
        for text in ("one two", "three four five", "six"):
            await client.write_event(Synthesize(text=text).event())
            lengths.append(len(sound(await until_type(client, "audio-stop"))))
        await client.write_event(Synthesize(text="seven").event())
        await client.write_event(Synthesize(text="eight nine").event())
        for _ in range(2):
            lengths.append(len(sound(await until_type(client, "audio-stop"))))
        return lengths

    assert asked(server, speak) == [12000 * count for count in (2, 3, 1, 1, 2)]


BAD: list[tuple[list[Event], str]] = [
    ([Synthesize(text="").event()], "input: empty"),
    ([Synthesize(text="one", voice=SynthesizeVoice(name="nobody")).event()], "'nobody' is not there"),
    ([Synthesize(text="one", voice=SynthesizeVoice(name="none/alloy")).event()], "'none' is not served"),
    ([Event("synthesize", {})], "fields that cannot be read"),
    ([Event("synthesize", {"text": "a", "voice": 5})], "fields that cannot be read"),
    ([Event("synthesize", {"text": "a", "voice": {"name": 5}})], "not a string"),
    ([SynthesizeChunk(text="one").event()], "before synthesize-start"),
    ([SynthesizeStop().event()], "before synthesize-start"),
    ([SynthesizeStart().event(), SynthesizeStart().event()], "again before"),
    ([SynthesizeStart().event(), SynthesizeStop().event()], "no words"),
    ([SynthesizeStart().event(), Event("synthesize-chunk", {"text": None})], "text: not a string"),
    ([SynthesizeStart().event(), SynthesizeChunk(text="y" * 5000).event()], "more than 4096"),
    ([Synthesize(text="one choke").event()], "choked"),
]


@pytest.mark.parametrize(("sent", "words"), BAD, ids=[words for _, words in BAD])
def test_errors_are_told_and_end_the_connection(shared: Served, sent: list[Event], words: str) -> None:
    async def talk(client: AsyncTcpClient) -> tuple[Event, Event | None]:
        for event in sent:
            await client.write_event(event)
        *_, last = await until_type(client, "error")
        return last, await client.read_event()

    error, after = asked(shared, talk)
    assert words in Error.from_event(error).text
    assert after is None
    until(lambda: shared.service.engine.statistics().running == 0)


def raw(server: Served) -> socket.socket:
    return socket.create_connection(address(server), SOON)


def everything(one: socket.socket) -> bytes:
    """What comes until the server closes."""
    return b"".join(iter(lambda: one.recv(1 << 16), b""))


@pytest.mark.parametrize(
    "sent",
    [
        b"not json\n",
        b"[]\n",
        b'{"type": 5}\n',
        b'{"data": {}}\n',
        b'{"type": "ping", "data": 5}\n',
        b'{"type": "ping", "data_length": "9"}\n',
        b'{"type": "ping", "data_length": 1000000000}\n',
        b'{"type": "ping", "payload_length": 1000000000}\n',
        b'{"type": "ping", "data_length": 2}\nxx',
        b"x" * (1 << 20),
        b"POST /v1/audio/speech HTTP/1.1\r\nHost: localhost\r\n\r\n" + b'{"type": "describe"}\n' * 9,
    ],
    ids=lambda sent: sent[:40].decode(),
)
def test_what_is_no_event(shared: Served, sent: bytes) -> None:
    """An error, and the end; a web page that posts to the port gets no further."""
    found = b""
    with raw(shared) as one, suppress(ConnectionError):
        one.sendall(sent)
        while piece := one.recv(1 << 16):
            found += piece
    assert found.count(b'"type": "error"') <= 1
    assert b"info" not in found
    until(lambda: shared.figure("mlx_port_live_connections") == 0)


@pytest.mark.parametrize("kind", ["ping", "synthesize", "transcribe"])
def test_half_of_a_surrogate_pair(shared: Served, kind: str) -> None:
    """JSON may have it; no answer can."""
    with raw(shared) as one:
        one.sendall(b'{"type": "%s", "data": {"text": "a\\ud800"}}\n' % kind.encode())
        found = everything(one)
    assert b"cannot be written as UTF-8" in found
    assert b"invalid_event" in found


def test_a_length_of_none_and_one_below_it(shared: Served) -> None:
    for name in ("data_length", "payload_length"):
        with raw(shared) as one:
            one.sendall(b'{"type": "ping", "%s": 0}\n' % name.encode())
            assert b'"pong"' in one.recv(1 << 16)
            one.sendall(b'{"type": "ping", "%s": -1}\n' % name.encode())
            assert f"{name} is no length".encode() in everything(one)


def test_clients_that_leave_or_stand_still(tmp_path: Path) -> None:
    """Each frees its place and socket; others are served."""
    gate = threading.Semaphore(0)
    source, settings = Talk(gate=gate), Settings(limits=Limits(idle_seconds=0.5))
    with wyoming_server(tmp_path, source, settings) as server:
        files = psutil.Process().num_fds()

        async def leave(client: AsyncTcpClient) -> None:
            await client.write_event(Synthesize(text=f"{FIRST} {SECOND}").event())
            while "join one" not in source.log:
                await asyncio.sleep(0.01)

        asked(server, leave)
        until(lambda: server.figure("mlx_port_live_connections") == 0)
        gate.release(1000)
        until(lambda: server.service.engine.statistics().outcomes.get("cancelled") == 1)
        halves = (b"", b'{"type": "desc', b'{"type": "ping", "data_length": 5}\n{')
        for half in (*halves, b'{"type": "synthesize-start"}\n'):
            with raw(server) as one:
                one.sendall(half)
                assert b"timeout" in everything(one)
        until(lambda: server.figure("mlx_port_live_connections") == 0)
        until(lambda: psutil.Process().num_fds() <= files)


def test_a_client_that_does_not_read(tmp_path: Path) -> None:
    text = "These are some words to be spoken here. " * 100
    settings = Settings(limits=Limits(stall_seconds=0.5, ahead_seconds=5))
    with wyoming_server(tmp_path, settings=settings) as server, raw(server) as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        data = json.dumps({"text": text}).encode()
        slow.sendall(b'{"type": "synthesize-start"}\n')
        slow.sendall(b'{"type": "synthesize-chunk", "data_length": %d}\n' % len(data) + data)
        slow.sendall(b'{"type": "synthesize-stop"}\n')
        until(lambda: server.figure('mlx_port_live_total{kind="wyoming",outcome="stalled"}') == 1)
        until(lambda: server.service.engine.statistics().running == 0)
        assert len(sound(answered(server, Synthesize(text="one").event(), end="audio-stop"))) == 12000


def test_too_many_connections(tmp_path: Path) -> None:
    settings = Settings(limits=Limits(sockets=2))
    with wyoming_server(tmp_path, settings=settings) as server, raw(server), raw(server):
        until(lambda: server.figure("mlx_port_live_connections") == 2)

        async def refused(client: AsyncTcpClient) -> Event | None:
            return await client.read_event()

        event = asked(server, refused)
        assert event is not None
        assert Error.from_event(event).code == "queue_full"


def test_closing_lets_a_speech_end(tmp_path: Path) -> None:
    gate = threading.Semaphore(0)
    source = Talk(gate=gate)
    with wyoming_server(tmp_path, source) as server, raw(server) as idle:

        async def speak(client: AsyncTcpClient) -> list[Event]:
            await client.write_event(Synthesize(text=FIRST).event())
            while "join one" not in source.log:
                await asyncio.sleep(0.01)
            server.server.should_exit = True
            await asyncio.to_thread(idle.recv, 1)
            gate.release(1000)
            return await until_type(client, "audio-stop")

        assert len(sound(asked(server, speak))) == 12000 * 5


def test_a_flood_of_pings_after_an_unknown_event(server: Served) -> None:
    async def flood(client: AsyncTcpClient) -> Event | None:
        await client.write_event(Event("transcribe", {"name": "x"}, b"payload"))
        for number in range(500):
            await client.write_event(Ping(text=str(number)).event())
        events = [await client.read_event() for _ in range(500)]
        return events[-1]

    last = asked(server, flood)
    assert last is not None
    assert Pong.from_event(last).text == "499"


def test_a_client_may_listen_longer_than_it_may_be_idle(tmp_path: Path) -> None:
    """It sends nothing while a speech goes on, for several times `idle_seconds`."""
    gate = threading.Semaphore(0)
    settings = Settings(limits=Limits(idle_seconds=0.05))
    with wyoming_server(tmp_path / "voices", Talk(gate=gate), settings) as server:

        async def listen(client: AsyncTcpClient) -> list[Event]:
            await client.write_event(Synthesize(text="one two").event())
            await asyncio.sleep(0.3)
            gate.release(2)
            return await until_type(client, "audio-stop")

        assert asked(server, listen)[-1].type == "audio-stop"


LETTERS = "abcdefghijklmnopqrstuvwxyzS"


def test_letters_that_a_model_has_not_learned_are_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """And logged: no field of the protocol could ask for it. Whole sentences of them, too."""
    source = of_letters(LETTERS)
    with wyoming_server(tmp_path / "voices", source) as server:
        whole = Synthesize(text="\N{PARTY POPPER} one \u6771 two.").event()
        assert answered(server, whole, end="audio-stop")[-1].type == "audio-stop"
        assert source.asked[-1][0].split() == ["one", "two."]
        texts = [
            "\u6771" * 30 + ". ",
            "one two three four five. ",
            "\u6771" * 30 + ". ",
            "Six seven eight nine ten.",
        ]
        chunks = [SynthesizeChunk(text=text).event() for text in (*texts, "\u6771. \N{PARTY POPPER}")]
        found = answered(
            server, SynthesizeStart().event(), *chunks, SynthesizeStop().event(), end="synthesize-stopped"
        )
        assert found[-1].type == "synthesize-stopped", found[-1]
        said = " ".join(text for text, *_ in source.asked[1:] if text != "Yes.")
        assert "".join(char for char in said if char.isalpha()) == "onetwothreefourfiveSixseveneightnineten"
        assert server.post(input="one \u6771").status_code == 200, (
            "HTTP has a field for it, the talk any letter"
        )
    assert "left out \N{PARTY POPPER} \u6771: the model has not learned them" in caplog.text
    assert source.asked[-1][0] == "one \u6771"


def test_a_surrogate_pair_that_is_cut(shared: Served) -> None:
    """JSON may have a half in each of two chunks."""
    talk = shared.service.engine.models["talk"]
    with raw(shared) as one:
        one.sendall(b'{"type": "synthesize-start"}\n')
        one.sendall(b'{"type": "synthesize-chunk", "data": {"text": "one \\ud83c"}}\n')
        one.sendall(
            b'{"type": "synthesize-chunk", "data": {"text": "\\udf89"}}\n{"type": "synthesize-stop"}\n'
        )
        until(lambda: any(text == "one \N{PARTY POPPER}" for text, *_ in talk.asked))  # pyright: ignore
        one.shutdown(socket.SHUT_WR)
        everything(one)
