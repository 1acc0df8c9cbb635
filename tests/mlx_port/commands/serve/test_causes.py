"""What led to an answer of 500 is in the log, at every door, and not in the answer; when to come back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mlx_port.commands.serve.errors import ApiError, api_error, log_cause
from tests.mlx_port.commands.serve.live.client import client
from tests.mlx_port.commands.serve.served import Served
from tts_core.errors import BusyError, CancelledError, GenerationError, UsageError


def over_http(server: Served) -> str:
    return server.post(input="crash now").text


def in_a_batch(server: Served) -> str:
    return server.post("/v1/audio/speech/batch", items=[{"input": "crash now"}]).text


def over_a_websocket(server: Served) -> str:
    with client(server) as one:
        one.send("start")
        one.send("text", text="crash now.")
        one.send("end")
        one.end()
        return str(one.events)


@pytest.mark.parametrize("ask", [over_http, in_a_batch, over_a_websocket])
def test_the_cause_is_logged(server: Served, caplog: Any, ask: Callable[[Served], str]) -> None:
    answer = ask(server)
    assert "internal" in answer
    assert "crashed" not in answer
    lines = [one.getMessage() for one in caplog.records if one.name == "mlx_port.serve"]
    assert any("RuntimeError: crashed" in line for line in lines), lines


@pytest.mark.parametrize(
    ("error", "line", "has_traceback"),
    [
        (KeyError("deep"), "here: internal: KeyError: 'deep'", True),
        (GenerationError("it broke"), "here: it broke", False),
        (ApiError(500, "no sound"), "here: no sound", False),
        (UsageError("text: empty"), None, False),
        (CancelledError("closing"), None, False),
    ],
)
def test_what_is_logged(caplog: Any, error: Exception, line: str | None, has_traceback: bool) -> None:
    log_cause("here", error)
    assert [one.getMessage().startswith(str(line)) for one in caplog.records] == [True] * (line is not None)
    assert [one.exc_info is not None for one in caplog.records] == [has_traceback] * (line is not None)


@pytest.mark.parametrize(("seconds", "header"), [(0.0, "1"), (0.4, "1"), (1.6, "2"), (12.0, "12")])
def test_a_full_queue_asks_for_a_second_at_least(seconds: float, header: str) -> None:
    found = api_error(BusyError("queue: full", seconds))
    assert (found.status, found.headers) == (429, {"retry-after": header})
