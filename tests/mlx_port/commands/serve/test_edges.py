"""Edges of what a server takes, over HTTP: a body to the byte, names like its own, silence after the text."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from mlx_port.commands.serve.settings import Limits, Settings
from tests.mlx_port.commands.serve.live.client import client
from tests.mlx_port.commands.serve.served import SOON, Served, Talk, error_of, served

PATH = "/v1/audio/speech"
MOST = 200  # bytes of a body


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server whose bodies are small."""
    settings = Settings(limits=Limits(body=MOST))
    with served(tmp_path_factory.mktemp("small") / "voices", settings=settings) as found:
        yield found


@pytest.mark.parametrize("has_length", [True, False])
@pytest.mark.parametrize(("over", "status"), [(0, 200), (1, 413)])
def test_a_body_of_exactly_the_limit_is_taken(
    small: Served, has_length: bool, over: int, status: int
) -> None:
    bare = json.dumps({"input": "one two", "response_format": "pcm"}).encode()
    body = bare + b" " * (MOST + over - len(bare))
    content, headers = (
        body if has_length else iter([body[:20], body[20:]]),
        {"content-type": "application/json"},
    )
    response = httpx.post(small.url + PATH, content=content, headers=headers, timeout=SOON)
    assert response.status_code == status
    if over:
        assert error_of(response)["message"] == f"body: more than {MOST} bytes"


@pytest.mark.parametrize(
    ("host", "status"),
    [
        *(("notlocalhost", 403), ("notlocalhost:8000", 403), ("a.notlocalhost", 403), ("a-localhost", 403)),
        *(("a.localhost", 200), ("a.b.localhost:8000", 200)),
    ],
)
def test_only_names_below_localhost_are_this_machines(shared: Served, host: str, status: int) -> None:
    body = {"input": "one", "response_format": "pcm"}
    response = httpx.post(shared.url + PATH, json=body, headers={"host": host}, timeout=SOON)
    assert response.status_code == status
    if status == 403:
        assert error_of(response)["code"] == "host_refused"


def test_a_client_may_be_silent_after_the_end_of_its_text(tmp_path: Path) -> None:
    """For longer than `idle_seconds`, as long as the speech takes."""
    gate = threading.Semaphore(0)
    settings = Settings(limits=Limits(idle_seconds=0.5))
    with served(tmp_path / "voices", Talk(gate=gate), settings=settings) as server, client(server) as found:
        found.send("start")
        found.send("text", text="One two.")
        found.send("end")
        time.sleep(0.8)
        gate.release(3)
        found.end()
    assert found.events[-1] == {"type": "done", "finish_reason": "stop"}
