"""GET /v1/audio/models: what a form needs."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from unicodedata import category

import pytest

import tts_core
from mlx_port.commands.serve.describe import BLOCKS, describe
from tests.mlx_port.commands.serve.served import Served
from tts_core import models
from tts_core.audio.formats import names
from tts_core.dia.config import read_published
from tts_core.errors import FieldError
from tts_core.options import info, options_class
from tts_core.text.alphabet import known_text
from tts_core.text.rules import FILE as RULES
from tts_core.text.rules import read_rules

VOICE = Path(tts_core.__file__).parent / "voice" / "dia"


@pytest.mark.parametrize("name", models.NAMES)
def test_every_option_of_a_request_is_described(name: str) -> None:
    """As JSON, with a default that the model takes."""
    found = json.loads(json.dumps(describe(name), allow_nan=False))
    options = {field.name: field for field in fields(options_class(name)) if info(field).flags}
    assert [*found["options"]] == [*options]
    for option, one in found["options"].items():
        plain, default = one["anyOf"][0], one.get("default")
        assert plain["type"] in ("boolean", "integer", "number", "string")
        assert one["description"].endswith(".")
        assert default == options[option].default
        options_class(name)(**{option: default})
        if "minimum" in plain and default is not None and not isinstance(default, str):
            assert plain["minimum"] <= default <= plain.get("maximum", float("inf"))


def test_facts_of_models() -> None:
    speakers = {name: describe(name)["speakers"] for name in models.NAMES}
    assert speakers == {"dia": 2, "dia2": 2, "mars5": 1, "metavoice": 1, "qwen3": 1}
    assert [name for name in models.NAMES if describe(name)["needs_voice"]] == ["mars5", "metavoice"]
    options = describe("dia")["options"]
    assert options["speed"] == {
        "anyOf": [{"type": "number", "minimum": 0.5, "maximum": 2}, {"type": "null"}],
        "default": 1.0,
        "description": info(next(one for one in fields(options_class("dia")) if one.name == "speed")).help,
    }
    assert options["piece_seconds"]["anyOf"][2:] == [{"type": "string", "enum": ["auto"]}, {"const": 0}]
    top_p = options["top_p"]["anyOf"][0]
    assert top_p["exclusiveMinimum"] == 0
    assert "minimum" not in top_p


def test_own_speakers() -> None:
    """Of the embedded voice; the published models speak like recordings, as far as their files say."""
    found = describe("dia", {"dia": read_published(json.loads((VOICE / "config.json").read_text()))})
    assert (found["own_speakers"], found["recordings"], found["transcript"]) == (["slt", "rms"], 0, "unused")
    assert not any(describe(name)["own_speakers"] for name in models.NAMES)


def test_the_route(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    found = server.get("/v1/audio/models").json()
    assert found["data"] == found["models"]
    [model] = found["models"]
    assert (model["id"], model["model"], model["title"]) == ("talk", "dia", "Dia")
    assert found["limits"] == {
        "input": 4096,
        "seconds": 900,
        "upload_bytes": 32 << 20,
        "upload_seconds": 120,
    }
    assert (found["object"], found["formats"][0]) == ("list", "wav")
    monkeypatch.setattr(names, "find_spec", lambda name: None)
    assert server.get("/v1/audio/models").json()["formats"] == ["wav", "flac", "mp3", "opus", "pcm"]
    assert "options" not in server.get("/v1/models").json()["data"][0]


def test_letters_are_the_characters_that_are_not_refused() -> None:
    """Those that are spoken through plain letters too: the page marks all others while somebody types."""
    documents = {RULES: (VOICE / RULES).read_text("utf-8")}
    rules, letters = read_rules(documents), describe("dia", None, {"dia": documents})["letters"]
    assert {*"aZ5,é", *"ßŁØæÆœ"} <= {*letters}
    assert not {*"😀²№Пя "} & {*letters}
    for block in BLOCKS:
        for char in map(chr, block):
            try:
                known_text("text", f"a{char}a", rules.knows, skip=False)
            except FieldError:
                assert char not in letters
            else:
                assert char in letters or char.isspace() or category(char) in ("Cc", "Cs"), hex(ord(char))


def test_a_model_without_an_alphabet_reads_anything() -> None:
    assert describe("mars5")["letters"] is None
