"""`mlx-port bench --server`: every figure by a virtual clock, and the command against a stub."""

import asyncio
import json
import socket
import statistics
import struct
import threading
import xml.etree.ElementTree as ET
from contextlib import contextmanager, suppress
from itertools import pairwise

import numpy as np
import pytest

from mlx_port.commands.bench.load import command, post
from mlx_port.commands.bench.load.figures import (
    Answer,
    Load,
    Playback,
    figures,
    overload,
    peak,
    play,
)
from mlx_port.commands.bench.load.plot import plot
from mlx_port.commands.bench.load.post import Address, read_address
from mlx_port.commands.bench.load.report import report, table
from mlx_port.commands.bench.load.run import TEXTS, LoadSchedule, arrivals, at_rate, run
from mlx_port.commands.bench.load.sound import PcmMeter, WavMeter, meter
from mlx_port.commands.bench.load.target import LoadTarget
from tests.mlx_port.commands import virtual_loop
from tests.mlx_port.commands.running import one_line
from tests.mlx_port.commands.running import run as run_command
from tts_core.errors import UsageError

PCM = {"content-type": "audio/pcm"}
HALF = b"\0\1" * 12_000  # half a second of pcm at 24 kHz


def wav(rate: int, data: bytes, *, size: int | None = None, block: int = 2) -> bytes:
    """A WAV file; with a chunk that no reader needs before the data."""
    form = struct.pack("<HHIIHH", 1, 1, rate, rate * block, block, 8 * block)
    chunks = b"LIST" + struct.pack("<I", 3) + b"abc\0" + b"fmt " + struct.pack("<I", 16) + form
    return b"RIFF\xff\xff\xff\xffWAVE" + chunks + b"data" + struct.pack("<I", size or len(data)) + data


def speaker(form: str = "pcm", timeout: float = 30.0, **more) -> LoadTarget:
    return LoadTarget(Address("stub", 80, "/v1/audio/speech", False), "m", "v", form, timeout, **more)


@pytest.mark.parametrize(
    ("parts", "underruns", "silence"),
    [
        ([], 0, 0.0),
        ([(3.0, 0.5)], 0, 0.0),
        ([(3.0, 0.5), (3.5, 0.5), (3.75, 0.5)], 0, 0.0),  # just in time, then early
        ([(3.0, 0.5), (4.0, 0.25), (4.25, 1.0), (6.0, 1.0)], 2, 0.5 + 0.75),
        ([(3.0, 0.0), (9.0, 0.5), (9.25, 0.5)], 0, 0.0),  # a player starts with sound, not with a header
        ([(3.0, 2.0), (3.1, 2.0), (7.5, 1.0)], 1, 0.5),  # what came early is played first
    ],
)
def test_a_player_falls_silent_when_its_sound_runs_out(parts, underruns, silence):
    found = play(parts)
    assert (found.underruns, found.silence) == (underruns, silence)


@pytest.mark.parametrize(
    ("parts", "audible", "moment"),
    [
        ([(3.0, 0.5)], 0.0, 3.0),
        ([(3.0, 0.5), (3.1, 0.5)], 0.75, 3.75),  # a player plays the silence first
        ([(3.0, 0.5), (4.0, 0.5)], 0.75, 4.25),  # and what came late, late
        ([], 0.0, None),
    ],
)
def test_the_first_audible_sound_is_played_after_the_silence_before_it(parts, audible, moment):
    assert play(parts, audible).audible == moment


@pytest.mark.parametrize("cut", [1, 3, 4, 1000])
@pytest.mark.parametrize("sample", [33, -33, -32768])
def test_a_sample_over_minus_60_db_is_audible(cut, sample):
    samples = np.array([[0, 32], [-32, 0], [32, -32], [0, sample], [5000, 0]], "<i2")
    sound, data = PcmMeter(rate=10, channels=2), samples.tobytes()
    for place in range(0, len(data), cut):
        sound.add(data[place : place + cut])
    assert sound.audible == 0.3


@pytest.mark.parametrize("cut", [1, 7, 1000])
@pytest.mark.parametrize("size", [None, 0xFFFFFFFF])
def test_seconds_of_wav_are_those_of_its_header(cut, size):
    data, sound = wav(100, bytes(500), size=size), WavMeter()
    found = [sound.add(data[place : place + cut]) for place in range(0, len(data), cut)]
    assert sum(found) == pytest.approx(2.5)
    if cut == 1:
        assert not any(found[: len(data) - 500])


@pytest.mark.parametrize(
    ("headers", "given", "rate"),
    [
        ({}, None, 24000),
        (PCM, None, 24000),
        ({"content-type": 'audio/pcm; rate="16000"; channels=1'}, None, 16000),
        (PCM | {"x-sample-rate": "44100"}, None, 44100),
        (PCM | {"x-sample-rate": "44100"}, 8000, 8000),
    ],
)
def test_the_rate_of_pcm_is_the_flags_or_the_answers(headers, given, rate):
    found = meter("pcm", headers, given)
    assert isinstance(found, PcmMeter)
    assert found.rate == rate


def test_arrivals_are_poisson_of_a_seed_and_scale_with_the_rate():
    moments = list(arrivals(50, 200, 7))
    assert moments == list(arrivals(50, 200, 7)) != list(arrivals(50, 200, 8))
    np.testing.assert_allclose(list(arrivals(100, 100, 7)), np.array(moments) / 2)
    gaps = [after - before for before, after in pairwise([0.0, *moments])]
    assert statistics.fmean(gaps) == pytest.approx(1 / 50, rel=0.05)
    assert statistics.pstdev(gaps) == pytest.approx(1 / 50, rel=0.05)
    assert max(moments) < 200


def answer(planned: float, first: float, whole: float, *, error: str | None = None):
    parts = ((planned + first, 1.0),) if error is None else ()
    return Answer(planned, planned, planned + whole, parts, error)


def test_figures_are_those_of_the_answers():
    """A hundred first sounds after 1 to 100 ms, each with one gap of half a second; and five failures."""
    whole = [
        Answer(n, n + 0.001, n + 3.0, ((n + (n + 1) / 1000, 0.5), (n + (n + 1) / 1000 + 1.0, 1.5)))
        for n in range(100)
    ]
    failed = [Answer(200.0, 200.0, 200.5, (), "429")] * 4 + [Answer(200.0, 200.0, 210.0, (), "timeout")]
    found = figures(Load(1.0, 0.0, 100.0, whole + failed))
    assert (found["requests"], found["done"], found["errors"]) == (105, 100, {"429": 4, "timeout": 1})
    assert found["first_audio"] == pytest.approx({"p50": 0.0505, "p95": 0.09505, "p99": 0.09901})
    assert found["whole"] == pytest.approx({"p50": 3.0, "p95": 3.0, "p99": 3.0})
    assert found["real_time_factor"] == pytest.approx({"p50": 1.5, "p95": 1.5, "p99": 1.5})
    assert (found["underruns"], found["interrupted"]) == (100, 100)
    assert found["silence"] == pytest.approx(50.0)
    assert found["sound_per_second"] == pytest.approx(200 / 210)
    assert found["peak_in_flight"] == 5
    assert found["latest_send"] == pytest.approx(0.001)
    assert found["overload"] is None


def test_a_load_without_a_whole_answer_has_no_latency():
    found = figures(Load(1.0, 0.0, 10.0, [answer(1, 0, 2, error="503")]))
    assert (found["first_audio"], found["sound_per_second"]) == (None, 0)
    assert found["overload"] == "1 of 1 requests failed"
    assert figures(Load(1.0, 0.0, 10.0, []))["requests"] == 0


def steady(rate: int, whole: float, seconds: int = 40) -> Load:
    return Load(rate, 0, seconds, [answer(n / rate, 0.1, whole) for n in range(rate * seconds)])


def test_a_steady_load_is_held_and_a_growing_one_is_not():
    assert overload(steady(5, 6.0)) is None
    growing = [answer(n / 5, 0.1, 1 + n / 5 / 4) for n in range(200)]  # serves 4 of 5
    assert str(overload(Load(5.0, 0, 40, growing))).startswith("requests pile up: ")
    few = [answer(n, 0.1, 1 + n / 20) for n in range(40)]  # grows, but by less than 4
    assert overload(Load(1.0, 0, 40, few)) is None


def test_a_slow_answer_delays_no_later_request():
    """The server stalls from second 4 to 9; whoever arrives then is asked for at once and waits till 9."""
    sent = []

    async def ask(text, planned):
        now = asyncio.get_running_loop().time
        sent.append(now())
        if 4 <= now() < 9:
            await asyncio.sleep(9 - now())
        return Answer(planned, sent[-1], now() + 0.5, ((now() + 0.125, 1.0),))

    plan = LoadSchedule(["a"], [8], 12, 3, 1)
    load = virtual_loop.run(at_rate(ask, plan, 8))
    planned = list(arrivals(8, 12, 3))
    assert [one.due - load.start for one in load.answers] == pytest.approx(planned)
    assert sent == pytest.approx([load.start + moment for moment in planned])
    for one in load.answers:
        waits = max(0, 9 - one.due) if 4 <= one.due < 9 else 0
        assert one.first == pytest.approx(waits + 0.125)
    stalled = sum(4 <= moment < 9 for moment in planned)
    assert peak(load.answers) >= stalled


def test_rates_end_with_the_first_that_is_too_much():
    async def ask(text, planned):
        now = asyncio.get_running_loop().time()
        error = "429" if len(seen) == 4 else None  # the third rate
        return Answer(planned, now, now, ((now, 1.0),), error)

    seen: list[str] = []
    plan = LoadSchedule(TEXTS, [2, 4, 8, 16], 10, 0, 3)
    loads = virtual_loop.run(run(ask, plan, seen.append))
    assert [load.rate for load in loads] == [None, 2, 4, 8]
    assert len(loads[0].answers) == 3
    assert len(seen) == 4
    assert report(speaker(), plan, loads)["not_run"] == [16]


class Stub:
    """A server on a Unix socket that does what a script says. asked: heads and bodies.

    script: of each connection in turn, the last one again: bytes to send, seconds to wait.
    """

    def __init__(self, *script):
        self.script, self.asked = list(script), []

    async def __call__(self, reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        size = next(int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"content-length:"))
        self.asked.append((head, json.loads(await reader.readexactly(size))))
        turns = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        try:
            for turn in turns:
                if isinstance(turn, bytes):
                    writer.write(turn)
                else:
                    await asyncio.sleep(turn)
        finally:
            writer.close()


def head(status: int = 200, **headers: str) -> bytes:
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([f"HTTP/1.1 {status} Any", *lines, "", ""]).encode()


def chunk(data: bytes) -> bytes:
    return f"{len(data):X};x=y\r\n".encode() + data + b"\r\n"


CHUNKED = head(Transfer_Encoding="chunked", content_type="audio/pcm")
SPOKEN = [0.25, CHUNKED, chunk(HALF), 1.0, chunk(HALF), chunk(HALF), 0.25, b"0\r\n\r\n"]


def spoken(stub, tmp_path, monkeypatch, program):
    """Run a program of a LoadTarget by the virtual clock, in which the stub answers."""
    place = str(tmp_path / "socket")

    async def serve():
        async with await asyncio.start_unix_server(stub, place):
            return await program

    monkeypatch.setattr(post.asyncio, "open_connection", lambda *_, **__: asyncio.open_unix_connection(place))
    return virtual_loop.run(serve())


def test_a_request_is_openais_and_its_answer_is_timed_as_it_comes(tmp_path, monkeypatch):
    stub, asking = Stub(SPOKEN), speaker(key="secret", more={"stream": True})
    found = spoken(stub, tmp_path, monkeypatch, asking.send("Hello.", 0.0))
    assert found.error is None
    assert (found.first, found.whole, found.sound) == (0.25, 1.5, 1.5)
    assert play(found.parts) == Playback(1, 0.5, 0.25)
    [(asked, body)] = stub.asked
    assert asked.startswith(b"POST /v1/audio/speech HTTP/1.1\r\nhost: stub:80\r\n")
    assert b"\r\nauthorization: Bearer secret\r\n" in asked
    assert body == {
        "model": "m",
        "input": "Hello.",
        "voice": "v",
        "response_format": "pcm",
        "stream": True,
    }


@pytest.mark.parametrize(
    "turns",
    [
        [head(content_length="24000"), HALF],
        [head(), HALF[:1], HALF[1:]],  # until the connection ends
        [CHUNKED, chunk(HALF[:1]), chunk(HALF[1:]), b"0\r\n\r\n"],
    ],
)
def test_every_kind_of_body(tmp_path, monkeypatch, turns):
    found = spoken(Stub(turns), tmp_path, monkeypatch, speaker().send("a", 0.0))
    assert (found.error, found.sound) == (None, 0.5)


@pytest.mark.parametrize(
    ("turns", "error", "sound"),
    [
        ([head(429)], "429", 0),
        ([head(503, content_length="0")], "503", 0),
        ([CHUNKED, chunk(HALF)], "cut off", 0.5),
        ([head(content_length="24001"), HALF], "cut off", 0.5),
        ([], "cut off", 0),
        ([CHUNKED, b"0\r\n\r\n"], "no sound", 0),
        ([CHUNKED, chunk(bytes(24_000)), b"0\r\n\r\n"], "silent", 0.5),
        ([CHUNKED, chunk(HALF), b"zz\r\n"], "unreadable", 0.5),
        ([CHUNKED, b"2\r\nabcd\r\n"], "unreadable", 1 / 24000),
        ([b"SSH-2.0\r\n"], "unreadable", 0),
        ([head(content_type="audio/mpeg"), HALF], "unreadable", 0),
        ([CHUNKED, chunk(HALF), 40.0], "timeout", 0.5),
        ([40.0], "timeout", 0),
    ],
)
def test_every_failure_has_its_kind(tmp_path, monkeypatch, turns, error, sound):
    found = spoken(Stub(turns), tmp_path, monkeypatch, speaker().send("a", 0.0))
    assert (found.error, found.sound) == (error, sound)
    assert found.whole == (30.0 if error == "timeout" else 0.0)


def test_a_whole_run_by_the_clock(tmp_path, monkeypatch):
    """Every answer has its first sound after 250 ms, a gap of half a second, and 1.5 s of sound in 1.5 s."""
    plan = LoadSchedule(TEXTS, [0.5, 2], 20, 1, 2)
    stub = Stub(SPOKEN)
    loads = spoken(stub, tmp_path, monkeypatch, run(speaker().send, plan, lambda line: None))
    found = report(speaker(), plan, loads)
    counts = [2, *(len(list(arrivals(rate, 20, 1))) for rate in plan.rates)]
    assert [load["done"] for load in found["loads"]] == counts
    for load, count in zip(found["loads"], counts, strict=True):
        assert load["first_audio"] == pytest.approx({"p50": 0.25, "p95": 0.25, "p99": 0.25})
        assert load["whole"] == pytest.approx({"p50": 1.5, "p95": 1.5, "p99": 1.5})
        assert load["real_time_factor"]["p50"] == pytest.approx(1.0)
        assert (load["underruns"], load["silence"]) == (count, pytest.approx(count / 2))
        assert (load["errors"], load["overload"]) == ({}, None)
    assert [body["input"] for _, body in stub.asked[:2]] == list(TEXTS[:2])
    rows = [line.split() for line in table(found).splitlines()]
    assert ["alone", "2", "0", "1", *["250"] * 3, *["1.50"] * 3, "2", "1.00", "1.00", "1.0"] in rows
    check_plot(plot(found), rates=2)


def check_plot(drawn: str, rates: int) -> None:
    """Require three lines and as many rings as rates in each of two panels."""
    picture = ET.fromstring(drawn)
    names = [element.tag.rpartition("}")[2] for element in picture.iter()]
    assert (names.count("polyline"), names.count("circle")) == (6, 6 * rates)


def test_the_plot_of_a_server_that_answers_nothing_is_empty():
    loads = [Load(None, 0.0, 1.0, [answer(0, 0, 1, error="<500>")])]
    found = report(speaker(), LoadSchedule(["a"], [1], 10, 0, 1), loads)
    check_plot(plot(found), rates=0)
    assert "errors: 1 of <500>" in table(found)
    assert "not run: 1 a second" in table(found)


@pytest.mark.parametrize(
    ("url", "host", "port", "path", "tls"),
    [
        ("http://127.0.0.1:8000", "127.0.0.1", 8000, "/v1/audio/speech", False),
        ("http://a/v1/", "a", 80, "/v1/audio/speech", False),
        ("https://a/x", "a", 443, "/x/v1/audio/speech", True),
        ("http://[::1]:9/v1/audio/speech", "::1", 9, "/v1/audio/speech", False),
    ],
)
def test_a_server_is_named_by_its_root_or_its_route(url, host, port, path, tls):
    found = read_address(url)
    assert found == Address(host, port, path, tls)
    assert read_address(found.url) == found


@pytest.mark.parametrize(
    "url",
    [
        "",
        "a:8000",
        "ftp://a",
        "http://",
        "http://a:x",
        "http://u:p@a",
        "http://a?b",
        "http://a b",
        "http://ä",
    ],
)
def test_other_addresses_are_refused(url):
    with pytest.raises(UsageError, match="give its address as"):
        read_address(url)


@contextmanager
def listening(answer_bytes: bytes):
    """A server on a port of loopback with one answer for all. Yields its address."""
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            while not ended.is_set():
                connection, _ = server.accept()
                with connection, suppress(OSError):  # the client has gone
                    while b"}" not in connection.recv(65536):
                        pass
                    connection.sendall(answer_bytes)
                    connection.shutdown(socket.SHUT_WR)
                    connection.recv(1)  # until the client has gone

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}"
        finally:
            ended.set()
            with socket.create_connection(server.getsockname()) as last:
                last.sendall(b"}")
            thread.join()


def test_the_command_prints_a_table_and_writes_its_files(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(command, "ALONE", 2)
    monkeypatch.setenv("MLX_PORT_API_KEY", "key")
    body = wav(24000, HALF)
    with listening(head(content_type="audio/wav", content_length=str(len(body))) + body) as url:
        files = ["--json", tmp_path / "a.json", "--plot", tmp_path / "a.svg"]
        flags = ["--rates", "40,20", "--seconds", 0.5, "--format", "wav", "--seed", 1, *files]
        code, out, err = run_command(capsys, "bench", "--server", url, *flags)
    assert code == 0, err
    assert [line.partition(":")[0] for line in err.splitlines()] == ["alone", "20 a second", "40 a second"]
    assert f"{url}/v1/audio/speech, model tts-1, voice alloy, wav" in out
    found = json.loads((tmp_path / "a.json").read_text("utf-8"))
    counts = [2, *(len(list(arrivals(rate, 0.5, 1))) for rate in (20, 40))]
    assert [(load["rate"], load["done"]) for load in found["loads"]] == list(
        zip((None, 20, 40), counts, strict=True)
    )
    assert found["loads"][0]["sound"] == 1.0
    check_plot((tmp_path / "a.svg").read_text("utf-8"), rates=2)


def test_json_without_a_file_is_printed(capsys, monkeypatch):
    monkeypatch.setattr(command, "ALONE", 1)
    with listening(head(content_type="audio/pcm", content_length="24000") + HALF) as url:
        flags = ["--rates", 20, "--seconds", 0.2, "--text", "Hello.", "--json"]
        code, out, err = run_command(capsys, "bench", "--server", url, *flags)
    assert code == 0, err
    assert json.loads(out)["asked"]["characters"] == 6


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("a.txt", "One.\n\nAnd two.\n"),
        ("a.jsonl", '{"id": 1, "text": "One."}\n{"id": 2, "text": "And two."}\n'),
    ],
)
def test_texts_of_a_file_are_asked_for_by_turns(tmp_path, name, written):
    (tmp_path / name).write_text(written, "utf-8")
    assert command.read_texts(str(tmp_path / name)) == ["One.", "And two."]


@pytest.mark.parametrize(
    ("name", "written", "message"),
    [
        ("a.txt", b"\n \n", "has none; write one a line"),
        ("a.txt", b"\xff", "cannot be read as lines of UTF-8"),
        ("a.jsonl", b"Hello.", 'cannot be read as lines like {"text": "Hello."}'),
        ("a.jsonl", b'{"id": 1}', "cannot be read as lines like"),
        ("a.jsonl", b"[1]", "cannot be read as lines like"),
        ("a.txt", b"...", "texts: "),
    ],
)
def test_a_file_without_texts_is_one_line(capsys, tmp_path, name, written, message):
    (tmp_path / name).write_bytes(written)
    flags = ["--server", "http://127.0.0.1:9", "--texts", tmp_path / name]
    one_line(capsys, 2, message, "bench", *flags)
    one_line(capsys, 2, "texts: ", "bench", *flags[:3], tmp_path / "absent.txt")


@pytest.mark.parametrize(
    ("answered", "code", "message"),
    [
        (head(401), 2, "server: it answers 401; give its key with --api-key"),
        (head(400), 2, "server: it answers 400; check the address"),
        (head(404) + b'{"error": {"message": "no such model"}}', 2, "answers 404 (no such model); check the"),
        (head(500) + b"Internal\nError", 6, "answers 500 (Internal\\nError); its own log"),
        (head(content_type="text/html") + b"<p>", 6, "read as pcm over HTTP: content type text/html"),
        (head(content_type="audio/pcm"), 6, "server: the answer has no sound"),
        (head(content_type="audio/pcm") + bytes(2000), 6, "server: the answer is silent"),
        (head(content_length="9"), 6, "server: the connection ended before the speech did"),
    ],
)
def test_a_server_that_does_not_speak_is_one_line(capsys, answered, code, message):
    with listening(answered) as url:
        one_line(capsys, code, message, "bench", "--server", url)


def test_a_server_that_is_not_there_is_one_line(capsys):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    one_line(capsys, 3, f"server: {url}/v1/audio/speech cannot be reached (", "bench", "--server", url)


@pytest.mark.parametrize(
    ("code", "message", "flags"),
    [
        (2, "server: give its address as http://HOST:PORT", ["--server", "nowhere"]),
        (2, "rates: needs --server", ["--rates", "1"]),
        (2, "format: needs --server", ["--format", "wav"]),
        (2, "runs: does not go with --server", ["--server", "http://a", "--runs", "2"]),
        (2, "--rates: ", ["--server", "http://a", "--rates", "1,0"]),
        (2, "rates: give numbers", ["--server", "http://a", "--rates", "nan"]),
        (2, "body: not JSON", ["--server", "http://a", "--body", "{"]),
        (2, "body: give a JSON object", ["--server", "http://a", "--body", "[]"]),
        (2, "body: voice has a flag", ["--server", "http://a", "--body", '{"voice": "x"}']),
        (2, "text: there are no words", ["--server", "http://a", "--text", " "]),
        (2, "api-key: empty", ["--server", "http://a", "--api-key", ""]),
        (2, "plot: x.png ends in '.png'", ["--server", "http://a", "--plot", "x.png"]),
        (3, "json: the folder none does not exist", ["--server", "http://a", "--json", "none/x.json"]),
        (2, "seconds: 61 cannot be used", ["--seconds", "61"]),
    ],
)
def test_mistakes_are_one_line_before_any_request(capsys, monkeypatch, code, message, flags):
    monkeypatch.setattr(command.asyncio, "run", lambda *_: pytest.fail("asked"))
    one_line(capsys, code, message, "bench", *flags)
