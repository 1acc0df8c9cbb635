"""Errors as answers, in the words of the API; what led to an answer of 500 is in the log, at every door."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from mlx_port.commands.serve.errors import ApiError, api_error, log_cause
from mlx_port.commands.serve.names import check_voice
from mlx_port.commands.serve.settings import Limits, Settings
from tests.mlx_port.commands.serve.live.client import said
from tests.mlx_port.commands.serve.served import Served, Talk, error_of, served
from tests.tts_core.serving.talkers import Said
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


def lines_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The lines of errors, none with a traceback."""
    found = [one for one in caplog.records if one.levelname in ("WARNING", "ERROR")]
    assert not [one for one in found if one.exc_info]
    return [one.getMessage() for one in found]


SPEECHES = ("/v1/audio/speech", "/v1/audio/speech/batch")


@pytest.mark.parametrize("path", SPEECHES)
def test_a_speech_that_reaches_the_limit_of_time_is_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    """Its answer is cut off; one that had not begun is a 503."""
    gate = threading.Semaphore(2)
    source = Talk(gate=gate)
    settings = Settings(limits=Limits(request_seconds=0.5))
    items = [{"input": "one", "response_format": "wav"}, {"input": "one two three", "response_format": "wav"}]
    body: Any = {"items": items} if path.endswith("batch") else items[1]
    with served(tmp_path, source, settings=settings) as server:
        with pytest.raises(httpx.RemoteProtocolError):
            server.post(path, **body)
        answer = server.post(path, **body)
        assert (answer.status_code, error_of(answer)["code"]) == (503, "timeout")
    lines = [line for line in lines_of(caplog) if "is not complete after 0.5 s" in line]
    assert len(lines_of(caplog)) == len(lines) == 2


def test_a_speech_that_reaches_the_limit_of_its_sound_is_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Slow(Talk):
        def said(self, text: str, chosen: Any, prompt: Any) -> Any:
            """Expect less than is spoken."""
            return Short(**vars(super().said(text, chosen, prompt)))

    with (
        served(tmp_path, Slow(), settings=Settings(limits=Limits(audio_seconds=1))) as server,
        pytest.raises(httpx.RemoteProtocolError),
    ):
        server.post(input="one two three four five six")
    assert lines_of(caplog) == ["a speech broke off: the speech is longer than 1 s; send less text"]


class Short(Said):
    """A request that takes longer than is expected."""

    @property
    def seconds(self) -> float:
        return 0.1


def test_a_text_of_more_sound_than_the_limit_is_refused_at_once(tmp_path: Path) -> None:
    """Unless it is told where to end; in a batch the item is named."""
    source = Talk()
    body = {"input": "one two three four five six"}
    with served(tmp_path, source, settings=Settings(limits=Limits(audio_seconds=1))) as server:
        answer = server.post(**body)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "input")
        assert answer.json()["error"]["message"] == (
            "input: about 1.5 s of speech, and at most 1 s are spoken; send less text"
        )
        assert source.log == []
        batch = server.post("/v1/audio/speech/batch", items=[{"input": "one"}, body])
        assert (batch.status_code, error_of(batch)["param"]) == (400, "items[1].input")
        assert server.post(**{**body, "input": "one two three four"}).status_code == 200
        with pytest.raises(httpx.RemoteProtocolError):
            server.post(**body, max_seconds=1)
    assert len(source.asked) > 2


def test_fields_and_voices_are_listed_once(strict: Served) -> None:
    message = error_of(strict.post(input="one", qqqqqq=1))["message"]
    listed = message.partition("there is ")[2].split(", ")
    assert "speed" in listed
    assert len(listed) == len(set(listed))
    with pytest.raises(ApiError) as caught:
        check_voice("qqqqqq", ["alloy", "anna"], ["anna"])
    assert caught.value.message.count("alloy") == caught.value.message.count("anna") == 1
