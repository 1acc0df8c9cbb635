"""Bodies of requests: bounded JSON, read as one of the types of `fields` before anything is queued."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, NoReturn, TypeVar

from pydantic import ValidationError
from starlette.requests import Request

from mlx_port.commands.serve.errors import ApiError, invalid, unknown_field
from mlx_port.commands.serve.fields import OF_ANSWERS, UNKNOWN, Body, SpeechBody, bodies
from mlx_port.commands.serve.settings import Limits
from tts_core.errors import UsageError
from tts_core.text.checks import check_characters

MOST_FIELDS = 64  # of a JSON object
Read = TypeVar("Read", bound=Body)
_WORDS = {  # of pydantic's errors
    "missing": "missing",
    "string_type": "not a string",
    "string_too_long": "{length} characters; at most {max_length} are taken",
    "string_too_short": "empty",
    "bool_type": "{found} is neither true nor false",
    "int_type": "{found} is not a whole number",
    "float_type": "{found} is not a number",
    "list_type": "not a list",
    "model_type": "not a JSON object",
    "model_attributes_type": "not a JSON object",
    "too_long": "a list of more than {max_length}; send fewer",
    "too_short": "an empty list; give one at least",
    "is_instance_of": "not a file",
    "literal_error": "{found} is not one of {names}",
    "greater_than_equal": "{found} is below {ge:g}",
    "less_than_equal": "{found} is above {le:g}",
    "less_than": "{found} is not below {lt:g}",
}


async def read_json(request: Request, limits: Limits) -> dict[str, Any]:
    """Read a body as a JSON object. Raises ApiError 400, 408 and 413."""
    kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise invalid(
            None, f"content-type: {kind!r:.100} is not application/json; send JSON with that header"
        )
    body = await read_bytes(request, limits.body, limits.body_seconds)
    return parse(body, "body")


def parse(text: bytes | str, where: str) -> dict[str, Any]:
    """Parse a JSON object. where: in messages. Raises ApiError 400, also for NaN and fields given twice."""
    try:
        given = text.decode("utf-8") if isinstance(text, bytes) else text
        content = json.loads(given, parse_constant=_refuse, object_pairs_hook=_once)
    except (ValueError, RecursionError) as fault:
        raise invalid(None, f"{where}: not readable as JSON: {fault}", "invalid_json") from None
    if not isinstance(content, dict):
        raise invalid(None, f"{where}: not a JSON object", "invalid_json")
    return content


async def read_bytes(request: Request, most: int, seconds: float) -> bytes:
    """Read a body of at most `most` bytes that arrives within `seconds`. Raises ApiError 408 and 413."""
    declared = request.headers.get("content-length", "")
    body = bytearray()
    try:
        async with asyncio.timeout(seconds):
            if not (declared.isdigit() and int(declared) > most):
                async for piece in request.stream():
                    body += piece
                    if len(body) > most:
                        break
                else:
                    return bytes(body)
    except TimeoutError:
        raise ApiError(408, f"body: not complete after {seconds:g} s", code="timeout") from None
    raise ApiError(413, f"body: more than {most} bytes", code="too_large")


def read(kind: type[Read], body: Any) -> Read:
    """Read a body as one of the types. Raises ApiError 400 that names the first field at fault."""
    try:
        return kind.model_validate(body)
    except ValidationError as error:
        raise _refused(error) from None


def read_speech(body: Mapping[str, Any], limits: Limits) -> SpeechBody:
    """Read the fields that every model has. Raises ApiError 400 naming the field."""
    return read(bodies(limits, limits.batch).speech, body)


def read_live(body: Mapping[str, Any], limits: Limits) -> SpeechBody:
    """Read the fields of a speech whose text follows; its sound is pcm. Raises ApiError 400 naming one."""
    given = {name: value for name, value in body.items() if value is not None}
    if "input" in given:
        raise invalid("input", "input: send the text in messages of type text")
    for name in OF_ANSWERS:
        if name in given:
            raise invalid(name, f"{name}: not for a speech over a WebSocket; leave it out")
    if given.get("response_format", "pcm") != "pcm":
        raise invalid("response_format", f"response_format: {given['response_format']!r:.40} is not pcm")
    fields = read_speech({**given, "input": "...", "response_format": "pcm"}, limits)
    return fields.model_copy(update={"input": ""})


def _refused(error: ValidationError) -> ApiError:
    """Put the first fault of a body into words."""
    fault = error.errors(include_url=False)[0]
    where, context, found = fault["loc"], fault.get("ctx", {}), fault["input"]
    name = "".join(f"[{item}]" if isinstance(item, int) else f".{item}" for item in where).lstrip(".")
    if fault["type"] == UNKNOWN:
        before = f"{name}." if name else ""
        strange, *known = (f"{before}{item}" for item in context["names"])
        return unknown_field(strange, known)
    cause = context.get("error")
    if fault["type"] == "string_unicode":
        try:
            check_characters(name, found)
        except UsageError as refused:
            return invalid(name, str(refused))
    if isinstance(cause, UsageError):
        words = str(cause).partition(": ")[2]
    elif cause is not None:
        words = str(cause)
    else:
        names = str(context.get("expected", "")).replace("'", "").replace(" or ", ", ")
        known = _WORDS.get(fault["type"], "{found}: " + fault["msg"][:1].lower() + fault["msg"][1:])
        length = len(found) if isinstance(found, str) else 0
        words = known.format(**{**context, "found": f"{found!r:.40}", "names": names, "length": length})
    code = "missing_field" if fault["type"] == "missing" else "invalid_value"
    return invalid(name or None, f"{name}: {words}" if name else f"body: {words}", code)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a number in JSON")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(pairs) > MOST_FIELDS:
        raise ValueError(f"{len(pairs)} fields in one object; at most {MOST_FIELDS} are taken")
    content = dict(pairs)
    if len(content) < len(pairs):
        raise ValueError("a field is given twice")
    return content
