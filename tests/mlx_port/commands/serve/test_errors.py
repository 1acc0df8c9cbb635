"""Errors as answers: in the words of the API, and with what the page needs to word them itself."""

import pytest

pytest.importorskip("starlette", reason="needs the serve extra")

from mlx_port.commands.serve.errors import api_error
from tts_core.errors import FieldError, UsageError


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
