"""Configurations of all kinds: classes, our own schema, which is strict, and sizes, which are positive."""

import json
import math
from collections.abc import Iterator
from typing import Any, cast

import pytest

from tests.tiny.mbd import CONFIG as MBD
from tts_core import models
from tts_core.codecs.dac import DAC_44KHZ, DacConfig
from tts_core.codecs.encodec import EncodecConfig
from tts_core.config import check_quantization, config_of
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
            missing = (
                "" if name == "own_speakers" else rf"; missing ([\w.]+\.)?{name}"
            )  # folders of before lack that one
            with pytest.raises(CheckpointError, match=rf"unknown ([\w.]+\.)?more{missing}$"):
                read(written)
            place.clear()
            place.update(whole)


WRONG = (None, True, "x", 1.5, -1, 0, [], {}, math.nan, 10**400)
OPTIONAL = ("dialect", "speaker_encoder", "processor")  # fields that may be null
FRACTIONS = ("rope_min_timescale", "rope_max_timescale", "growth", "clip")  # whole in some published files
SIGNED = ("power_std",)
MAY_BE_EMPTY = ("languages", "speakers", "own_speakers")


def fits(name: str, old: Any, new: Any) -> bool:
    """True if a value is of the type that was there, and not beyond every range."""
    if old is None or new is None:
        return name in OPTIONAL
    if isinstance(old, bool) or isinstance(new, bool):
        return isinstance(old, bool) and isinstance(new, bool)
    if isinstance(old, int | float):
        return (
            isinstance(new, int if isinstance(old, int) and name not in FRACTIONS else int | float)
            and abs(new) < 2**31
            and (new >= 0 or name in SIGNED)
        )
    return isinstance(new, type(old)) and (new != [] or name in MAY_BE_EMPTY)


def places(held: Any, name: str = "") -> Iterator[tuple[Any, Any, str]]:
    """Every place inside a JSON value: its container, its key, and the name of its field."""
    pairs = held.items() if isinstance(held, dict) else enumerate(held) if isinstance(held, list) else ()
    for key, value in [*pairs]:
        inside = key if isinstance(key, str) else name
        yield held, key, inside
        yield from places(value, inside)


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_value_of_a_wrong_type_is_a_fault_of_its_field(kind: str) -> None:
    config, read = cast(Any, CONFIGS[kind]), models.network(kind).read_converted
    written = json.loads(json.dumps(config.to_dict()))
    for holder, key, name in places(written):
        old = holder[key]
        for new in WRONG:
            holder[key] = new
            try:
                read(written)
            except CheckpointError:
                continue
            assert fits(name, old, new), (name, new)
        holder[key] = old


@pytest.mark.parametrize("kind", CONFIGS)
def test_all_wrong_types_are_named_in_one_error(kind: str) -> None:
    config, read = cast(Any, CONFIGS[kind]), models.network(kind).read_converted
    written = json.loads(json.dumps(config.to_dict()))
    wrong = [name for name, value in written.items() if not isinstance(value, dict) and name not in OPTIONAL]
    with pytest.raises(CheckpointError) as caught:
        read(written | {key: {} for key in wrong})
    assert all(f"{name} {{}}" in str(caught.value) for name in wrong)


@pytest.mark.parametrize("kind", CONFIGS)
def test_layers_and_codebooks_are_at_most_a_thousand(kind: str) -> None:
    config, read = cast(Any, CONFIGS[kind]), models.network(kind).read_converted
    written = json.loads(json.dumps(config.to_dict()))
    for holder, key, name in places(written):
        old = holder[key]
        if name.endswith(("layers", "codebooks")):
            holder[key] = 1001
            with pytest.raises(CheckpointError, match=f"{name} 1001: expected a whole number from 1 to 1000"):
                read(written)
            holder[key] = old


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
