"""Many requests with disconnects, bad bodies and three formats, over HTTP, WebSockets and Wyoming: no wrong
body, nothing left behind.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.mlx_port.commands.serve.live import live_soak
from tests.mlx_port.commands.serve.served import SOON, Talk, expected, until
from tests.tts_core.serving import talkers

pytestmark = pytest.mark.rest

FORMATS = ("mp3", "wav", "flac")
CLIENTS = 8  # at once
ROOT = Path(__file__).parents[4]
RUN = """
import sys
from pathlib import Path
from tests.mlx_port.commands.serve.served import served
from tests.mlx_port.commands.serve.test_soak import PacedTalk
from mlx_port.commands.serve.settings import Limits, Settings
wyoming = ("127.0.0.1", 0) if sys.argv[2] else None
settings = Settings(wyoming=wyoming, limits=Limits(start_seconds=2, idle_seconds=2))
with served(Path(sys.argv[1]), PacedTalk(), settings=settings) as server:
    print(server.url, *(server.server.beside.address if wyoming else ()), flush=True)
    sys.stdin.read()
"""


class Paced(talkers.Chorus):
    """Takes a millisecond a step, so that clients leave while it speaks."""

    def step(self):
        time.sleep(0.001)
        return super().step()


class PacedTalk(Talk):
    """A model whose batch is Paced; its log is not kept, or memory would grow with it."""

    def __init__(self) -> None:
        super().__init__()
        singers = talkers.Singers([], None)
        singers.session = lambda places: Paced(places, _Forgetful())  # pyright: ignore[reportAttributeAccessIssue]
        self.load = lambda: singers
        self.asked = _Forgetful()


class _Forgetful(list):
    def append(self, item) -> None:
        pass


def one(url: str, port: tuple[str, int] | None, seed: int) -> str:
    """Send one request; return how it ended. Raises AssertionError for a wrong body."""
    draw = random.Random(seed)
    way = draw.choice(["http", "websocket", "wyoming"])
    if way == "websocket":
        return live_soak.over_websocket(url, draw)
    if way == "wyoming" and port is not None:
        return live_soak.over_wyoming(port, draw)
    return over_http(url, draw, seed)


def over_http(url: str, draw: random.Random, seed: int) -> str:
    text = " ".join(f"word{draw.randrange(1000)}" for _ in range(draw.randint(1, 40)))
    name = draw.choice(FORMATS)
    kind = draw.choices(["whole", "leave", "bad", "choke"], [60, 25, 10, 5])[0]
    body = {"input": text, "response_format": name, "seed": seed}
    with httpx.Client(timeout=SOON) as client:
        if kind == "bad":
            path, sent = draw.choice(bad(body))
            answer = client.post(f"{url}/v1/audio/{path}", **sent)
            assert answer.status_code == 400, (path, answer.status_code, answer.text)
            return kind
        url += "/v1/audio/speech"
        if kind == "whole" and draw.random() < 0.2:
            beside(client, url.removesuffix("/speech"))
        elif kind == "choke":
            with suppress(httpx.RemoteProtocolError):
                assert client.post(url, json=body | {"input": f"{text} choke"}).status_code == 500
        elif kind == "leave":
            wait = draw.uniform(0.001, 0.1)
            with (
                suppress(httpx.TimeoutException),
                client.stream("POST", url, json=body, timeout=wait) as response,
            ):
                for _ in zip(range(draw.randint(0, 9)), response.iter_raw(200), strict=False):
                    pass
        else:
            response = client.post(url, json=body)
            assert response.status_code == 200
            assert response.content == expected(text, name)
            assert response.headers["x-seed"] == str(seed)
    return kind


def bad(body: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """A request of every route that is a 400: path and arguments of the client. body: of a speech."""
    pcm = {"content-type": "audio/pcm;rate=24000;channels=1"}
    form, files = {"name": "anna", "consent": "true"}, {"audio_sample": ("a.wav", b"RIFF no sound")}
    return [
        ("speech", {"json": body | {"speed": 5}}),
        ("speech", {"json": body | {"input": " "}}),
        ("speech/batch", {"json": {"items": [body, body | {"voice": "x"}]}}),
        ("captions", {"json": {"format": "srt", "cues": [{"text": "a", "start": 0, "end": -1}]}}),
        ("encode", {"content": b"abc", "headers": pcm}),
        ("voices", {"data": form, "files": files}),
    ]


def beside(client: httpx.Client, url: str) -> None:
    """Use the routes that speak nothing."""
    cues = {"format": "vtt", "cues": [{"text": "a", "start": 0, "end": 1}]}
    assert client.post(f"{url}/captions", json=cues).status_code == 200
    headers = {"content-type": "audio/pcm;rate=24000;channels=1"}
    assert client.post(f"{url}/encode", content=b"\0" * 4800, headers=headers).status_code == 200


@contextmanager
def apart(folder: Path) -> Iterator[tuple[str, tuple[str, int] | None, psutil.Process]]:
    """A server in a process of its own: its address, that for Wyoming, and the process."""
    words = [sys.executable, "-c", RUN, str(folder), "yes" if find_spec("wyoming") else ""]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        words, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        url, *place = process.stdout.readline().split()
        yield url, (place[0], int(place[1])) if place else None, psutil.Process(process.pid)
        process.communicate("", SOON)
        assert process.returncode == 0


def soak(url: str, port: tuple[str, int] | None, count: int, start: int) -> set[str]:
    with ThreadPoolExecutor(CLIENTS) as pool:
        kinds = set(pool.map(lambda seed: one(url, port, seed), range(start, start + count)))
    until(lambda: is_quiet(httpx.get(f"{url}/metrics", timeout=SOON).text))
    return kinds


def is_quiet(figures: str) -> bool:
    """Check that nothing is spoken and no live connection is open."""
    names = ("mlx_port_running ", "mlx_port_live_connections{")
    return all(line.endswith(" 0.0") for line in figures.splitlines() if line.startswith(names))


def run(folder: Path, before: int, count: int) -> None:
    """Send `before` requests, until memory is settled, and then those that must not make it grow."""
    with apart(folder) as (url, port, process):
        threads, files = process.num_threads(), process.num_fds()
        soak(url, port, before, 0)
        memory = process.memory_info().rss
        assert soak(url, port, count, before) >= {"whole", "leave", "bad", "live"}
        until(lambda: process.num_fds() <= files)
        assert process.num_threads() <= threads + 2 * CLIENTS, "a client that left may still have a worker"
        assert process.memory_info().rss <= 1.05 * memory


def test_a_short_soak(tmp_path: Path) -> None:
    run(tmp_path, 40, 40)


@pytest.mark.slow
def test_a_soak_of_300(tmp_path: Path) -> None:
    run(tmp_path, 600, 300)
