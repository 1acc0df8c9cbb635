"""From the fields of a speech to the options of a model; what is of no use is ignored or refused."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from mlx_port.commands.serve.errors import ApiError, api_error, invalid, unknown_field
from mlx_port.commands.serve.fields import SpeechBody, read_prompt, recording_bytes
from mlx_port.commands.serve.names import LANGUAGES
from mlx_port.commands.serve.recordings import decoded
from mlx_port.commands.serve.settings import Limits
from tts_core.errors import UsageError
from tts_core.models import Model
from tts_core.options import info, options_class, single_values
from tts_core.prompt import Prompt, Reference
from tts_core.serving.voices import fitted

OPTIONS = {"instructions": "instruct", "lang_code": "language", "max_new_tokens": "max_frames"}
OF_SOUND = ("ref_audio", "ref_text", "sample_rate")  # fields that are no option
NEAREST = " is the nearest"
MOST_WARNINGS = 8  # headers of an answer


def model_options(
    body: SpeechBody, spec: Model, limits: Limits, ignored: list[ApiError] | None = None
) -> dict[str, Any]:
    """Choose the options of a model from the fields of a request, each converted to its type.

    ignored: collects the fields that neither the API nor the model has, or that the model cannot honor; None
    refuses them.
    Raises ApiError 400 naming the field, also for a value that cannot be used.
    """
    kind, others = options_class(spec.name), body.model_extra or {}
    taken = {field.name: info(field) for field in fields(kind) if info(field).flags}
    given, left = dict[str, Any](), [] if ignored is None else ignored
    for name, value in body.rest.items():
        own = OPTIONS.get(name, name)
        if name not in others and (value == "" or name in OF_SOUND):
            continue
        if own == "language" and own in taken:
            short = re.split("[-_]", str(value).lower())[0]
            given[own] = LANGUAGES.get(short, value)
        elif own in taken or (own == "max_frames" and name != own):
            given[own] = value
        elif name not in others:
            left.append(invalid(name, f"{name}: {spec.name} takes none; leave it out", "unknown_field"))
        else:
            left.append(unknown_field(name, [*SpeechBody.model_fields, *taken]))
    speed, rate = taken["speed"], body.sample_rate and body.form.rate(body.sample_rate)
    nearest = min(max(body.speed, speed.low), speed.high)
    if nearest != body.speed:
        given["speed"] = nearest
        outside = f"speed: {body.speed:g} is outside [{speed.low:g}, {speed.high:g}]"
        left.append(invalid("speed", f"{outside}; {nearest:g}{NEAREST}"))
    if rate != body.sample_rate:
        none = f"sample_rate: {body.sample_rate} is none of {body.form.name}'s"
        left.append(invalid("sample_rate", f"{none}; {rate}{NEAREST}"))
    if body.stream is False and body.sse:
        left.append(invalid("stream", "stream: stream_format sse streams; leave it out"))
    if body.ref_text and body.ref_audio is None:
        left.append(invalid("ref_text", "ref_text: there is no ref_audio; leave it out"))
    if body.ref_audio and spec.references == 0:
        left.append(invalid("ref_audio", f"ref_audio: {spec.title} takes no recording; leave it out"))
    elif body.ref_audio and not body.ref_text and spec.transcript == "needed":
        message = f"ref_text: missing; {spec.title} needs the words of ref_audio"
        raise invalid("ref_text", message, "missing_field")
    if ignored is None and left:
        raise left[0]
    try:
        options = single_values(kind, given)
    except UsageError as error:
        raise api_error(error) from None
    longest = options.get("max_seconds")
    if longest is not None and longest > limits.audio_seconds:
        raise invalid("max_seconds", f"max_seconds: {longest:g} is more than {limits.audio_seconds:g}")
    return options


def reference(body: SpeechBody, spec: Model, limits: Limits) -> Prompt | None:
    """Read the prompt of a request, or its recording if the model takes one. Raises ApiError 400."""
    if body.prompt is not None:
        return read_prompt(body.prompt)
    if body.ref_audio is None or spec.references == 0:
        return None
    samples, rate = decoded("ref_audio", recording_bytes(body.ref_audio), limits.upload_seconds)
    recording = Reference(samples, body.ref_text or None, None, rate, name="ref_audio")
    return fitted(Prompt((recording,)), "ref_audio", spec)


def warning(error: ApiError) -> str:
    """Say what is ignored, in a line that a header can carry."""
    what = error.message.partition("; there is ")[0].removesuffix("; leave it out")
    what += "" if what.endswith(NEAREST) else "; ignored"
    return what.encode("ascii", "backslashreplace").decode()


def warnings(said: Sequence[str]) -> list[tuple[bytes, bytes]]:
    """The headers that warn of what was ignored; a number stands for those that are too many."""
    lines = [*said[:MOST_WARNINGS]]
    if len(said) > len(lines):
        lines.append(f"{len(said) - len(lines)} more fields are ignored")
    quoted = (line.replace("\\", "\\\\").replace('"', '\\"') for line in lines)
    return [(b"warning", f'299 mlx-port "{line}"'.encode()) for line in quoted]


def has_seed(model: str) -> bool:
    """Return True if a model has a seed to set. model: the name of its spec."""
    return any(field.name == "seed" for field in fields(options_class(model)))
