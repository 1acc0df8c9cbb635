"""GET /openapi.json and /docs: the API described from the types that check it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from html import escape
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, models_json_schema
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from mlx_port.commands.serve.body import MOST_FIELDS
from mlx_port.commands.serve.describe import Schema, describe_options
from mlx_port.commands.serve.examples import example
from mlx_port.commands.serve.fields import OF_ANSWERS, SpeechBody
from mlx_port.commands.serve.page import HEADERS
from mlx_port.commands.serve.routes import service_of
from mlx_port.commands.serve.service import Service
from tts_core.audio.formats.names import FORMATS

SOUND: Schema = {"schema": {"type": "string", "contentMediaType": "application/octet-stream"}}
ERROR: Schema = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                **{name: {"type": ["string", "null"]} for name in ("type", "param", "code")},
                "reason": {"type": "string", "description": "What was wrong, without the field's name."},
                "option": {"type": ["string", "null"], "description": "A field that helps."},
            },
        }
    },
}
STREAM = (
    "WebSocket: text in while sound goes out. Messages: Stream-start, Stream-text as often as you like, then "
    "Stream-end, or Stream-cancel."
)
REF = "#/components/schemas/{model}"
NAMED = {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}


async def openapi(request: Request) -> Response:
    """GET /openapi.json: the API in OpenAPI 3.1."""
    return JSONResponse(description(service_of(request)))


async def docs(request: Request) -> Response:
    """GET /docs: the same as a page without scripts, which needs no key."""
    service = service_of(request)
    has_key = service.settings.access.api_key is not None
    called = partial(example, str(request.base_url), has_key=has_key)
    page = _page(description(service), called)
    return Response(page, headers={"content-type": "text/html; charset=utf-8", **HEADERS})


def description(service: Service) -> Schema:
    """Describe a service: paths, fields, and the options of its models with their ranges."""
    schemas: dict[str, Schema] = {"Error": ERROR, **_bodies(service)}
    schemas |= {f"Options-{index}": option for index, option in enumerate(_options(service))}
    found: Schema = {
        "openapi": "3.1.0",
        "info": {"title": "mlx-port", "version": "1", "description": "Speech with OpenAI's API."},
        "paths": _paths(service),
        "components": {"schemas": schemas},
    }
    if service.settings.access.api_key is not None:
        found["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        found["security"] = [{"key": []}]
    return found


def _bodies(service: Service) -> dict[str, Schema]:
    """Describe the bodies and messages by their types, a speech with the options of any served model."""
    *bodies, messages = service.bodies
    kinds: list[Any] = [(kind, "validation") for kind in (*bodies, *messages.values())]
    _, found = models_json_schema(kinds, ref_template=REF, schema_generator=_Generator)
    schemas: dict[str, Schema] = found["$defs"]
    schemas["Speech"] |= {"maxProperties": MOST_FIELDS, "additionalProperties": not service.settings.strict}
    fields: dict[str, Schema] = schemas["Speech"]["properties"]
    for options in _options(service):
        for name, option in options["properties"].items():
            if name not in SpeechBody.model_fields and fields.setdefault(name, option) != option:
                fields[name] = {"anyOf": [*fields[name].get("anyOf", [fields[name]]), option]}
    start = {name: field for name, field in fields.items() if name not in ("input", *OF_ANSWERS)}
    start |= {"response_format": {"type": "string", "enum": ["pcm"]}, "api_key": {"type": "string"}}
    own = {"title": "Stream-start", "required": ["type"], "properties": {"type": {"const": "start"}, **start}}
    return {**schemas, "Stream-start": {**schemas["Speech"], **own}}


class _Generator(GenerateJsonSchema):
    """Leaves out titles that repeat a name, and defaults that are no value."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def default_schema(self, schema: Any) -> Schema:
        found = super().default_schema(schema)
        return {name: item for name, item in found.items() if name != "default" or item is not None}


def _options(service: Service) -> list[Schema]:
    """Describe the options of each served model."""
    longest, found = service.settings.limits.audio_seconds, []
    for name in service.names:
        options = describe_options(service.engine.models[name].model, longest)
        found.append({"title": f"Options of {name}", "type": "object", "properties": options})
    return found


def _paths(service: Service) -> Schema:
    wanted = {"name": "response_format", "in": "query", "schema": {"type": "string", "enum": [*FORMATS]}}
    return {
        "/v1/audio/speech": {"post": _call("Speak a text.", _ref("Speech"), sound=True)},
        "/v1/audio/speech/batch": {"post": _call("Speak several texts.", _ref("Batch"))},
        "/v1/audio/speech/stream": {"get": _call(STREAM)},
        "/v1/audio/encode": {
            "post": {
                **_call(
                    "Encode samples: 16 bits, little-endian, audio/pcm;rate=RATE;channels=1.",
                    {"type": "string"},
                    kind="audio/pcm",
                    sound=True,
                ),
                "parameters": [wanted],
            }
        },
        "/v1/audio/captions": {"post": _call("Write captions.", _ref("Captions"))},
        "/v1/audio/voices": {
            "get": _call("List the voices."),
            "post": _call("Add a voice.", _ref("Voice"), kind="multipart/form-data"),
        },
        "/v1/audio/voices/{id}": {"delete": {**_call("Remove a voice."), "parameters": [NAMED]}},
        "/v1/audio/models": {"get": _call("List the models with their options, formats and limits.")},
        "/v1/models": {"get": _call("List the models.")},
        "/v1/models/{id}": {"get": {**_call("Describe a model."), "parameters": [NAMED]}},
        "/health": {"get": _call("200 once the models are ready.")},
        "/ready": {"get": _call("The same as /health.")},
        "/metrics": {"get": _call("Figures for Prometheus.")},
        "/openapi.json": {"get": _call("This description.")},
        "/docs": {"get": _call("This description as a page.")},
    }


def _ref(name: str) -> Schema:
    return {"$ref": REF.format(model=name)}


def _call(
    summary: str, body: Schema | None = None, *, kind: str = "application/json", sound: bool = False
) -> Schema:
    media = {form.media_type.partition(";")[0]: SOUND for form in FORMATS.values()} if sound else {}
    good: Schema = {"description": "The answer.", **({"content": media} if media else {})}
    bad = {"description": "An error.", "content": {"application/json": {"schema": _ref("Error")}}}
    taken = {} if body is None else {"requestBody": {"required": True, "content": {kind: {"schema": body}}}}
    return {"summary": summary, **taken, "responses": {"200": good, "default": bad}}


def _page(found: Schema, called: Callable[[str, str], str]) -> str:
    """Write a description as HTML. called: writes an example of a method and path."""
    parts = ["<h1>mlx-port</h1>", "<p>The same for programs: <a href='/openapi.json'>/openapi.json</a></p>"]
    for path, calls in found["paths"].items():
        for method, call in calls.items():
            parts.append(
                f"<h2><code>{method.upper()} {escape(path)}</code></h2><p>{escape(call['summary'])}"
                f"{_taken(call)}</p><pre>{escape(called(method, path))}</pre>"
            )
    for name, schema in found["components"]["schemas"].items():
        rows = "".join(
            f"<tr><td><code>{escape(field)}</code></td><td>{escape(_written(item))}</td>"
            f"<td>{escape(item.get('description', ''))}</td></tr>"
            for field, item in schema["properties"].items()
        )
        title = escape(schema.get("title", name))
        parts.append(f"<h2>{title}</h2><table><tr><th>field<th>values<th></tr>{rows}</table>")
    head = (
        "<meta charset='utf-8'><meta name='viewport' content='width=device-width'><title>mlx-port API</title>"
    )
    return (
        f"<!doctype html><html lang='en'><head>{head}</head><body><main>{''.join(parts)}</main></body></html>"
    )


def _taken(call: Schema) -> str:
    """Write what a call takes as its body."""
    content = call.get("requestBody", {}).get("content", {})
    return "".join(
        f" Body: {escape(_written(item['schema']))}, {escape(kind)}." for kind, item in content.items()
    )


def _written(schema: Schema) -> str:
    """Write the values that a field takes."""
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(map(_written, schema["anyOf"])))
    if "enum" in schema:
        return ", ".join(map(str, schema["enum"]))
    if "const" in schema:
        return str(schema["const"])
    low = f" above {schema['exclusiveMinimum']:.10g}" if "exclusiveMinimum" in schema else ""
    low = f" from {schema['minimum']:.10g}" if "minimum" in schema else low
    high = f" to {_number(schema['maximum'])}" if "maximum" in schema else ""
    high = f" below {_number(schema['exclusiveMaximum'])}" if "exclusiveMaximum" in schema else high
    high = f", at most {schema['maxLength']} characters" if "maxLength" in schema else high
    if schema.get("type") == "array":
        most = f", at most {schema['maxItems']}" if "maxItems" in schema else ""
        return f"array of {_written(schema['items'])}{most}"
    if "$ref" in schema:
        return schema["$ref"].rpartition("/")[2]
    kind = schema.get("type", "object")
    if not isinstance(kind, str):
        return " or ".join(kind)
    return f"{kind}{low}{high}"


def _number(value: float) -> str:
    """Write a bound; a whole number exactly, as 2**64 - 1 is."""
    return str(value) if isinstance(value, int) else f"{value:.10g}"
