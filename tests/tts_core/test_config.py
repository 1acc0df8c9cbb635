"""Configurations of all kinds: classes, our own schema, which is strict, and sizes, which are positive."""

import json
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any, cast

import pytest

from tests.tiny.mbd import CONFIG as MBD
from tts_core import models
from tts_core.codecs.dac import DAC_44KHZ, DacConfig
from tts_core.codecs.encodec import EncodecConfig
from tts_core.config import check_quantization, config_of
from tts_core.dia.sampling import DiaSampling
from tts_core.errors import CheckpointError

CONFIGS = {
    kind: config
    for name in models.NAMES
    for configs in models.MODELS[name].sizes.values()
    for kind, config in configs.items()
} | {"mbd": MBD}


def objects(value: Any) -> Iterator[dict[str, Any]]:
    """Every object in a JSON value."""
    if isinstance(value, dict):
        yield value
        value = [*value.values()]
    if isinstance(value, list):
        for one in value:
            yield from objects(one)


@pytest.mark.parametrize("kind", CONFIGS)
def test_our_own_schema_comes_back_and_is_strict(kind: str) -> None:
    """As JSON. In each of its objects every unknown and every missing name is an error."""
    config, read = cast(Any, CONFIGS[kind]), models.network(kind).read_converted
    written = json.loads(json.dumps(config.to_dict()))
    assert read(written) == config
    for place in objects(written):
        whole = dict(place)
        for name in whole:
            place["more"] = place.pop(name)
            missing = "" if name == "own_speakers" else f"; missing {name}"  # folders of before lack that one
            with pytest.raises(CheckpointError, match=f"unknown more{missing}$"):
                read(written)
            place.clear()
            place.update(whole)


def parts(config: Any) -> Iterator[Any]:
    """A configuration and those inside."""
    yield config
    for field in fields(config):
        value = getattr(config, field.name)
        for one in value if isinstance(value, tuple) else (value,):
            if is_dataclass(one) and not isinstance(one, DiaSampling):
                yield from parts(one)


@pytest.mark.parametrize("kind", CONFIGS)
def test_sizes_are_positive_numbers_of_their_type(kind: str) -> None:
    """Of layers and codebooks there are not more than a thousand. Special ids have rules of their own."""
    for part in parts(CONFIGS[kind]):
        for field in fields(part):
            if str(field.type) not in ("int", "float") or field.name.endswith("_token_id"):
                continue
            wrong = ["8", True, None, -1, 1.5 if field.type == "int" else float("nan")]
            for value in (*wrong, *([] if field.name == "n_unread" else [0])):
                with pytest.raises(CheckpointError, match=field.name):
                    replace(part, **{field.name: value})
            if field.name.endswith(("layers", "codebooks")):
                with pytest.raises(CheckpointError, match="more than 1000"):
                    replace(part, **{field.name: 1001})


def test_a_configuration_keeps_its_class():
    assert config_of({"dac": DAC_44KHZ}, "dac", DacConfig) is DAC_44KHZ


def test_another_class_is_refused():
    with pytest.raises(TypeError, match=r"^dac: expected a EncodecConfig, found DacConfig"):
        config_of({"dac": DAC_44KHZ}, "dac", EncodecConfig)


def test_quantizations_that_the_port_reads():
    known = {"group_size": 64, "bits": 4, "mode": "affine"}
    check_quantization(None, "config.json")
    for given in (
        known,
        {"group_size": 32, "bits": 2},
        known | {"layer": known | {"bits": 8}, "other": False},
    ):
        check_quantization(given, "config.json")
    for wrong in (
        {"bits": 1},
        {"bits": 9},
        {"bits": True},
        {"bits": "4"},
        {"group_size": 48},
        {"mode": "q4"},
    ):
        for given in (known | wrong, known | {"layer": known | wrong}):
            with pytest.raises(CheckpointError, match=r"^config\.json: "):
                check_quantization(given, "config.json")


def test_a_missing_kind_is_refused():
    with pytest.raises(KeyError, match="vocos"):
        config_of({"dac": DAC_44KHZ}, "vocos", DacConfig)
