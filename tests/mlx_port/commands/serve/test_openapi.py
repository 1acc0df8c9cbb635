"""The description of the API: what it lists is what the server takes."""

from __future__ import annotations

import re
from typing import Any

import pytest

from mlx_port.commands.serve import app
from mlx_port.commands.serve.body import read_speech
from mlx_port.commands.serve.choose import model_options
from mlx_port.commands.serve.errors import ApiError, api_error
from mlx_port.commands.serve.fields import SpeechBody
from mlx_port.commands.serve.live.messages import TYPES
from mlx_port.commands.serve.settings import Limits, Settings
from tests.mlx_port.commands.serve.served import Served, Talk, served
from tts_core import models
from tts_core.errors import FieldError
from tts_core.options import info, options_class

METHODS = {"get", "post", "delete"}
WORDS = """
    type properties required additionalProperties maxProperties items minItems maxItems minimum maximum
    exclusiveMinimum exclusiveMaximum enum const anyOf default description title minLength maxLength format
    contentMediaType $ref
"""  # of JSON Schema


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A server of all models."""
    with served(tmp_path_factory.mktemp("voices"), {name: Talk(name) for name in models.NAMES}) as found:
        yield found


def test_a_default_that_a_model_has_itself_is_left_out(everything: Served) -> None:
    assert '"default":null' not in everything.get("/openapi.json").text.replace(" ", "")


def test_paths_are_the_routes(everything: Served) -> None:
    found = everything.get("/openapi.json").json()["paths"]
    routes: dict[str, set[str]] = {}
    for route in app._ROUTES:
        methods = getattr(route, "methods", None) or {"GET"}
        routes.setdefault(route.path.replace(":path", ""), set()).update(
            one.lower() for one in methods if one != "HEAD"
        )
    pages = {"/", "/page/{name}"}
    assert {path: set(calls) for path, calls in found.items()} == {
        path: methods for path, methods in routes.items() if path not in pages
    }


def test_fields_are_those_that_are_taken(everything: Served) -> None:
    found = everything.get("/openapi.json").json()
    own = {
        one.name
        for name in models.NAMES
        for one in options_class(name).__dataclass_fields__.values()
        if info(one).flags
    }
    assert set(found["components"]["schemas"]["Speech"]["properties"]) == {*SpeechBody.model_fields} | own
    voice = ["name", "audio_sample", "transcript", "consent", "consent_note"]
    assert [*found["components"]["schemas"]["Voice"]["properties"]] == voice


def test_bounds_are_those_of_the_checks(everything: Served) -> None:
    """Each bound is taken, and the next number beyond it is not."""
    schemas = everything.get("/openapi.json").json()["components"]["schemas"]
    for place, model in enumerate(models.NAMES):
        for name, option in schemas[f"Options-{place}"]["properties"].items():
            plain = option["anyOf"][0]
            if plain["type"] not in ("integer", "number"):
                continue
            checked(model, name, plain["maximum"])
            wrong = [plain["maximum"] + max(1, plain["maximum"] // 1000)]
            wrong += [plain["minimum"] - 1] if "minimum" in plain else [plain["exclusiveMinimum"]]
            for number in wrong:
                if {"const": number} in option["anyOf"]:
                    continue
                with pytest.raises(ApiError):
                    checked(model, name, number)


def checked(model: str, name: str, value: float) -> None:
    """Check an option as a request's."""
    model_options(read_speech({"input": "a", name: value}, Limits()), models.MODELS[model], Limits())


def schemas_in(value: Any) -> Any:
    """All schemas in a description, by what holds them."""
    if isinstance(value, list):
        for one in value:
            yield from schemas_in(one)
    elif isinstance(value, dict):
        for name, one in value.items():
            if name == "schema":
                yield from nested(one)
            yield from schemas_in(one)


def nested(schema: dict[str, Any]) -> Any:
    yield schema
    for one in [*schema.get("properties", {}).values(), *schema.get("anyOf", [])]:
        yield from nested(one)
    if "items" in schema:
        yield from nested(schema["items"])


def test_it_is_openapi_3_1(everything: Served) -> None:
    """Its structure, by the rules of the specification that it uses."""
    found = everything.get("/openapi.json").json()
    assert found["openapi"] == "3.1.0"
    assert {"title", "version"} <= found["info"].keys()
    assert found.keys() <= {"openapi", "info", "paths", "components", "security"}
    for path, calls in found["paths"].items():
        assert path.startswith("/")
        assert calls.keys() <= METHODS
        for call in calls.values():
            assert call.keys() <= {"summary", "requestBody", "responses", "parameters"}
            named = {
                one["name"] for one in call.get("parameters", []) if one["in"] == "path" and one["required"]
            }
            assert named == set(re.findall(r"\{(\w+)\}", path))
            assert all(re.fullmatch(r"[1-5]\d\d|default", status) for status in call["responses"])
            assert all(answer["description"] for answer in call["responses"].values())
            assert all("/" in kind for kind in call.get("requestBody", {"content": {}})["content"])
    for name in found["components"]["schemas"]:
        assert re.fullmatch(r"[\w.-]+", name)
    for schema in [*schemas_in(found["paths"]), *map(dict, found["components"]["schemas"].values())]:
        for one in nested(schema):
            assert one.keys() <= {*WORDS.split()}, one
            if "$ref" in one:
                assert one["$ref"].removeprefix("#/components/schemas/") in found["components"]["schemas"]
            kinds = one.get("type", [])
            known = {"object", "array", "string", "number", "integer", "boolean", "null"}
            assert {*([kinds] if isinstance(kinds, str) else kinds)} <= known


def test_the_page_has_every_path_and_field_and_loads_nothing(everything: Served) -> None:
    answer, found = everything.get("/docs"), everything.get("/openapi.json").json()
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-security-policy"] == everything.get("/").headers["content-security-policy"]
    loaded = re.sub(r"<pre>[^<]*</pre>", "", answer.text)  # the examples have addresses
    assert not re.search(r"<script|<style|style=|src=|<link|https?:", loaded)
    assert re.findall(r"href='([^']*)'", answer.text) == ["/openapi.json"]
    for path in found["paths"]:
        assert f" {path}</code>" in answer.text
    for schema in found["components"]["schemas"].values():
        for field in schema["properties"]:
            assert f"<code>{field}</code>" in answer.text
    seed = re.search(r"<code>seed</code></td><td>([^<]*)</td>", answer.text)
    assert seed is not None
    assert seed[1].startswith(f"integer from 0 to {2**64 - 1} or ")


BODIES = {
    "/v1/audio/speech": ("Speech", "application/json"),
    "/v1/audio/speech/batch": ("Batch", "application/json"),
    "/v1/audio/captions": ("Captions", "application/json"),
    "/v1/audio/voices": ("Voice", "multipart/form-data"),
    "/v1/audio/encode": ("string", "audio/pcm"),
}


def test_the_page_names_the_body_of_every_call(everything: Served) -> None:
    page, found = everything.get("/docs").text, everything.get("/openapi.json").json()
    posts = {path for path, calls in found["paths"].items() if "post" in calls}
    assert posts == set(BODIES)
    for path, (body, kind) in BODIES.items():
        assert re.search(rf"POST {path}</code></h2><p>[^<]* Body: {body}, {kind}\.</p>", page), path
    assert f"<td>string, at most {Limits().message} characters</td>" in page
    for kind in TYPES:
        assert f"Stream-{kind}" in page
        assert f"<td><code>type</code></td><td>{kind}</td>" in page


def test_a_batch_has_as_many_items_as_are_taken(tmp_path: Any) -> None:
    """No more than the queue."""
    for queue, batch, most in ((3, 9, 3), (9, 3, 3)):
        settings = Settings(max_queue=queue, limits=Limits(batch=batch))
        with served(tmp_path / str(queue), settings=settings) as server:
            described = server.get("/openapi.json").json()["components"]["schemas"]["Batch"]
            assert described["properties"]["items"]["maxItems"] == most
            for count, status in ((most, 200), (most + 1, 400)):
                items = [{"input": "one"}] * count
                assert server.post("/v1/audio/speech/batch", items=items).status_code == status


def test_errors_and_cues_are_described_as_they_are(everything: Served) -> None:
    schemas = everything.get("/openapi.json").json()["components"]["schemas"]
    error = api_error(FieldError("text", "no {option}", "skip_unknown")).body()["error"]
    assert set(schemas["Error"]["properties"]["error"]["properties"]) == set(error)
    cue = {"text": "a", "start": 0, "end": 1, "words": [{"text": "a", "start": 0, "end": 1}]}
    assert set(schemas["Cue"]["properties"]) == set(cue)
    assert schemas["Cue"]["properties"]["words"]["items"] == {"$ref": "#/components/schemas/Word"}
    assert set(schemas["Word"]["properties"]) == {"text", "start", "end"}
    body = {"format": "srt", "cues": [cue]}
    assert set(schemas["Captions"]["properties"]) == set(body)
    assert everything.post("/v1/audio/captions", **body).status_code == 200
