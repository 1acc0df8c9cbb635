"""Errors of the API: JSON in OpenAI's schema, from our errors. No message contains a path of the server."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence

from starlette.responses import JSONResponse

from tts_core.errors import (
    BusyError,
    CancelledError,
    FieldError,
    GenerationError,
    ResourceError,
    SpeechError,
    UsageError,
    did_you_mean,
    explain,
)
from tts_core.printable import one_line

LONGEST_NAME = 100  # characters of a client's name in a message
_LOG = logging.getLogger("mlx_port.serve")
_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_NAMED = re.compile(r"([a-z][a-z_.\[\]0-9-]*): ")  # our messages begin with the argument
_PARAMS = {"text": "input", "prompt": "voice", "format": "response_format", "sample": "audio_sample"}


class ApiError(Exception):
    """An answer that is an error. param: the field at fault.  code: a word for programs."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ):
        super().__init__(message)
        self.status, self.message, self.code = status, one_line(message), code
        self.param = None if param is None else one_line(param[:LONGEST_NAME])
        self.headers = dict(headers or {})
        self.reason = self.option = ""  # of a FieldError, for a reader with other names for fields: the page

    def body(self) -> dict[str, dict[str, str | None]]:
        """The error in OpenAI's schema."""
        kind = _TYPES.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")
        body = {"message": self.message, "type": kind, "param": self.param, "code": self.code}
        if self.reason:
            body |= {"reason": self.reason, "option": self.option or None}
        return {"error": body}

    def response(self) -> JSONResponse:
        """The error as a response."""
        return JSONResponse(self.body(), self.status, headers=self.headers)


def invalid(param: str | None, message: str, code: str = "invalid_value") -> ApiError:
    """Build a 400 for one field."""
    return ApiError(400, message, param=param, code=code)


def unknown_field(name: str, known: Sequence[str]) -> ApiError:
    """Build a 400 for a field that does not exist, with the nearest one. known: those that do."""
    shown = name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}..."
    hint = did_you_mean(shown, known) or f"there is {', '.join(dict.fromkeys(known))}"
    return invalid(name, f"{shown}: no such field; {hint}", "unknown_field")


def api_error(error: Exception) -> ApiError:
    """Translate an error of reading, queueing or speaking a request."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, FieldError):
        first, _, rest = error.field.partition(" ")  # "voice anna" is of the field voice
        name = _PARAMS.get(first, first)
        found = invalid(name, error.worded(str, f"{name} {rest}" if rest else name))
        found.reason, found.option = error.reason, error.option
        return found
    if isinstance(error, UsageError):
        found = _NAMED.match(str(error))
        name = found[1] if found else None
        return invalid(None if name is None else _PARAMS.get(name, name), str(error))
    if isinstance(error, BusyError):
        wait = {"retry-after": str(max(1, round(error.retry_after)))}
        return ApiError(429, str(error), code="queue_full", headers=wait)
    if isinstance(error, CancelledError):
        return ApiError(503, "the server is closing; try again later", code="closing")
    if isinstance(error, ResourceError):
        return ApiError(503, str(error), code="no_resources")
    if isinstance(error, GenerationError) and not str(error).startswith("internal"):
        return ApiError(500, str(error), code="generation_failed")
    detail = "the model's files" if isinstance(error, SpeechError) else "an internal error"
    return ApiError(500, f"{detail}: see the server's log, with this answer's x-request-id", code="internal")


def log_cause(what: str, error: Exception) -> None:
    """Log what led to an answer of 500 and above, which does not tell it; with a traceback for a bug.

    what: the beginning of the line. The end of a server is no fault.
    """
    if api_error(error).status >= 500:
        log_break(what, error)


def log_break(what: str, error: Exception) -> None:
    """Log any error of a speech whose client can no longer be told; otherwise as `log_cause`."""
    if not isinstance(error, CancelledError):
        cause = error.message if isinstance(error, ApiError) else explain(error)[1]
        is_bug = not isinstance(error, ApiError | SpeechError)
        _LOG.error("%s: %s", what, cause, exc_info=error if is_bug else None)
