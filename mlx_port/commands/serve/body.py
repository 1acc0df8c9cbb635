"""Bodies of requests: bounded JSON, and the fields of a speech, each checked before anything is queued."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from itertools import chain
from typing import Any, NoReturn

import numpy as np
from starlette.requests import Request

from mlx_port.commands.serve.errors import LONGEST_NAME, ApiError, api_error, invalid, unknown_field
from mlx_port.commands.serve.names import DEFAULT_VOICE
from mlx_port.commands.serve.settings import Limits
from tts_core.audio.formats.names import FORMATS, Format
from tts_core.errors import NotFoundError, UsageError
from tts_core.options import info, options_class, single_values
from tts_core.prompt import Prompt

STANDARD = ("input", "model", "voice", "response_format", "speed", "instructions", "stream_format")
OURS = ("pieces", "prompt")  # of every model, besides the standard
OF_MODELS = ("speed", "instructions")  # standard fields that a model may have as options
STREAMS = ("audio", "sse")
MOST_FIELDS = 64  # of a JSON object
MOST_CODES = 1 << 18  # of a prompt; far more than any model's window


@dataclass(frozen=True)
class SpeechBody:
    """A speech that is asked for, its fields of the right types. options: of the model, by name.

    voice: its name.
    model: as sent; None if it was not.
    pieces: an event for each piece of the text.
    prompt: speech to continue, in place of the voice's recording.
    """

    text: str
    model: str | None
    voice: str
    form: Format
    sse: bool
    rest: Mapping[str, Any]
    pieces: bool = False
    prompt: Prompt | None = None


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


def read_speech(body: Mapping[str, Any], limits: Limits) -> SpeechBody:
    """Check the types and bounds of the fields that every model has. Raises ApiError 400 naming the field."""
    given = {name: value for name, value in body.items() if value is not None}
    text = _string(given, "input", None, limits.text)
    if not text.strip():
        raise invalid("input", "input: empty; give the text to speak")
    return _fields(given, text, limits)


def read_live(body: Mapping[str, Any], limits: Limits) -> SpeechBody:
    """Check the fields of a speech whose text follows; its sound is pcm. Raises ApiError 400 naming one."""
    given = {name: value for name, value in body.items() if value is not None}
    if "input" in given:
        raise invalid("input", "input: send the text in messages of type text")
    for name in ("stream_format", "pieces"):
        if name in given:
            raise invalid(name, f"{name}: not for a speech over a WebSocket; leave it out")
    return _fields(
        {**given, "response_format": _choice(given, "response_format", ("pcm",), "pcm")}, "", limits
    )


def _fields(given: Mapping[str, Any], text: str, limits: Limits) -> SpeechBody:
    if len(_string(given, "instructions", "", limits.text)) and not given["instructions"].strip():
        raise invalid("instructions", "instructions: blank; leave it out")
    model = _string(given, "model", "", 200) or None
    if "model" in given and model is None:
        raise invalid("model", "model: empty; give a name of GET /v1/models")
    sse = _choice(given, "stream_format", STREAMS, "audio") == "sse"
    pieces = given.get("pieces", False)
    if not isinstance(pieces, bool) or (pieces and not sse):
        raise invalid("pieces", "pieces: give true or false; they are events, so send stream_format sse, too")
    return SpeechBody(
        text=text,
        model=model,
        voice=_voice(given.get("voice", DEFAULT_VOICE)),
        form=read_format(given),
        sse=sse,
        rest={
            name: value
            for name, value in given.items()
            if name in OF_MODELS or name not in (*STANDARD, *OURS)
        },
        pieces=pieces,
        prompt=read_prompt(given["prompt"], limits.text) if "prompt" in given else None,
    )


def read_format(given: Mapping[str, Any]) -> Format:
    """Read the format of an answer. Raises ApiError 400 for one that is unknown, or not installed."""
    name = _choice(given, "response_format", tuple(FORMATS), "mp3")
    try:
        FORMATS[name].check()
    except NotFoundError as fault:
        raise invalid("response_format", f"response_format: {fault}") from None
    return FORMATS[name]


def model_options(asked: SpeechBody, model: str, limits: Limits) -> dict[str, Any]:
    """Choose the options of a model from the fields of a request, each converted to its type.

    model: the name of its spec. Raises ApiError 400 for a field that neither the API nor the model has, with
    the nearest one, for a standard field that the model cannot honor, and for a value that cannot be used.
    """
    kind = options_class(model)
    known, given = [field.name for field in fields(kind) if info(field).flags], {}
    for name, value in asked.rest.items():
        if name in known:
            given[name] = value
        elif name == "instructions" and "instruct" in known:
            given["instruct"] = value
        elif not (name == "speed" and _is_one(value)):
            if name in STANDARD:
                raise invalid(name, f"{name}: {model} takes none; leave it out", "unknown_field")
            raise unknown_field(name, [*STANDARD, *OURS, *known])
    try:
        options = single_values(kind, given)
    except UsageError as error:
        raise api_error(error) from None
    longest = options.get("max_seconds")
    if longest is not None and longest > limits.audio_seconds:
        raise invalid("max_seconds", f"max_seconds: {longest:g} is more than {limits.audio_seconds:g}")
    return options


def read_prompt(value: Any, most_text: int) -> Prompt:
    """Read a prompt of one reference: {"text": its words, "codes": [[a codebook's codes], ...]}.

    most_text: characters of its text.

    The model checks the shape and range of the codes. Raises ApiError 400.
    """
    if not isinstance(value, dict) or value.keys() != {"text", "codes"}:
        raise invalid("prompt", "prompt: give an object with text and codes, as an event of a piece has it")
    text, rows = value["text"], value["codes"]
    if not isinstance(text, str) or not text.strip() or len(text) > most_text:
        raise invalid("prompt", f"prompt: its text is not a string of 1 to {most_text} characters")
    if not isinstance(rows, list) or not rows or not all(isinstance(row, list) for row in rows):
        raise invalid("prompt", "prompt: its codes are not a list of lists")
    if len({len(row) for row in rows}) > 1 or not rows[0] or len(rows) * len(rows[0]) > MOST_CODES:
        raise invalid("prompt", "prompt: its codes are of unequal lengths, empty, or too many")
    if not all(type(code) is int and 0 <= code < 1 << 16 for code in chain.from_iterable(rows)):
        raise invalid("prompt", "prompt: its codes are not whole numbers from 0 to 65535")
    return Prompt.of(codes=np.array(rows, np.int32), text=text)


def prompt_json(codes: np.ndarray, text: str) -> dict[str, Any]:
    """Write a prompt as `read_prompt` reads it. codes: (Q, T) int32."""
    return {"text": text, "codes": codes.tolist()}


def has_seed(model: str) -> bool:
    """Return True if a model has a seed to set. model: the name of its spec."""
    return any(field.name == "seed" for field in fields(options_class(model)))


def _is_one(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == 1


def _string(given: Mapping[str, Any], name: str, default: str | None, most: int) -> str:
    value = given.get(name, default)
    if value is None:
        raise invalid(name, f"{name}: missing", "missing_field")
    if not isinstance(value, str):
        raise invalid(name, f"{name}: not a string")
    if len(value) > most:
        raise invalid(name, f"{name}: {len(value)} characters; at most {most} are taken")
    return value


def _choice(given: Mapping[str, Any], name: str, choices: tuple[str, ...], default: str) -> str:
    value = given.get(name, default)
    if not isinstance(value, str) or value not in choices:
        shown = f"{value!r:.40}"
        raise invalid(name, f"{name}: {shown} is not one of {', '.join(choices)}")
    return value


def _voice(value: Any) -> str:
    """Read a voice, a name or {"id": name}."""
    if isinstance(value, dict):
        if set(value) != {"id"}:
            raise invalid("voice", 'voice: an object has one field, "id"')
        value = value["id"]
    if not isinstance(value, str) or not value.strip() or len(value) > LONGEST_NAME:
        raise invalid("voice", 'voice: give a name of GET /v1/audio/voices, or {"id": name}')
    return value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a number in JSON")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(pairs) > MOST_FIELDS:
        raise ValueError(f"{len(pairs)} fields in one object; at most {MOST_FIELDS} are taken")
    content = dict(pairs)
    if len(content) < len(pairs):
        raise ValueError("a field is given twice")
    return content
