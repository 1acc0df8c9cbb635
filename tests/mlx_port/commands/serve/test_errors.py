"""Errors as answers, in the words of the API; what led to an answer of 500 is in the log, at every door."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mlx_port.commands.serve.errors import ApiError, api_error, log_cause
from tests.mlx_port.commands.serve.live.client import said
from tests.mlx_port.commands.serve.served import Served
from tts_core.errors import BusyError, CancelledError, FieldError, GenerationError, UsageError


def test_a_field_and_its_option_have_the_names_of_the_api() -> None:
    error = FieldError("text", "the model has not learned 東; leave them out with {option}", "skip_unknown")
    answer = api_error(error)
    assert (answer.status, answer.param) == (400, "input")
    assert answer.body()["error"] == {
        "message": "input: the model has not learned 東; leave them out with skip_unknown",
        "type": "invalid_request_error",
        "param": "input",
        "code": "invalid_value",
        "reason": "the model has not learned 東; leave them out with {option}",
        "option": "skip_unknown",
    }


def test_a_reason_without_an_option() -> None:
    answer = api_error(FieldError("text", "[S1 at character 1 is not closed; write [S1]"))
    assert answer.message == "input: [S1 at character 1 is not closed; write [S1]"
    assert answer.body()["error"]["option"] is None


def test_other_errors_are_as_before() -> None:
    answer = api_error(UsageError("text: too long"))
    assert (answer.param, answer.message) == ("input", "text: too long")
    assert answer.body()["error"].keys() == {"message", "type", "param", "code"}


def over_http(server: Served) -> str:
    return server.post(input="crash now").text


def in_a_batch(server: Served) -> str:
    return server.post("/v1/audio/speech/batch", items=[{"input": "crash now"}]).text


def over_a_websocket(server: Served) -> str:
    return str(said(server, "crash now.").events)


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
