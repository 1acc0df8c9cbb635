"""The specs of all models: properties that generic code relies on."""

from dataclasses import FrozenInstanceError, fields, is_dataclass
from importlib import import_module
from typing import Any, cast

import pytest
import torch

from torch_ref.device import default_dtype
from tts_core import models
from tts_core.speaking.net import Net

KINDS = [(name, kind) for name in models.NAMES for kind in models.MODELS[name].networks]


@pytest.mark.parametrize("name", models.NAMES)
def test_a_model_is_made_of_its_own_networks_and_codecs(name):
    spec = models.MODELS[name]
    assert spec.name == name
    assert spec.networks[name].folder == ""
    assert {*spec.networks} <= {*spec.parts}
    assert {*spec.parts, *spec.extras} - {*spec.networks} <= {*models.CODECS}
    folders = [models.network(kind).folder for kind in (*spec.parts, *spec.extras)]
    assert len({*folders}) == len(folders)


@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_a_kind_is_found_by_its_name(name, kind):
    assert models.owner(kind) == name
    assert models.is_kind(kind)
    assert models.network(kind) is models.MODELS[name].networks[kind]
    assert models.network(kind).repository in models.MODELS[name].sizes


@pytest.mark.parametrize("kind", models.CODECS)
def test_a_codec_is_nobodys(kind):
    assert models.owner(kind) is None
    assert models.is_kind(kind)
    assert models.network(kind).repository


@pytest.mark.parametrize("name", models.NAMES)
def test_stages_in_words_are_those_of_its_networks(name):
    """The stages of its progress reports, in their order."""
    module = import_module(f"tts_core.{name}.net")
    own = [each for each in vars(module).values() if getattr(each, "__module__", "") == module.__name__]
    [net] = [each for each in own if isinstance(each, type) and Net in each.__mro__]
    assert tuple(models.MODELS[name].stages) == (tuple(net.stages) or ("prompt", "speech"))
    assert {*models.MODELS[name].speed.stages} <= {*models.MODELS[name].stages}


@pytest.mark.parametrize("kind", ["", "parrot", "mars5_third", "spec", "dia.config", "../dia"])
def test_other_names_are_no_kind(kind):
    assert not models.is_kind(kind)
    with pytest.raises(KeyError):
        models.network(kind)


@pytest.mark.parametrize("name", models.NAMES)
def test_published_sizes_are_of_every_part(name):
    spec = models.MODELS[name]
    for configs in spec.sizes.values():
        assert set(configs) == set(spec.parts)
        for kind, config in configs.items():
            network, written = models.network(kind), cast(Any, config).to_dict()
            shapes = network.parameter_shapes(config)
            assert any(map(network.is_large, shapes)) or kind != name
            assert network.read_converted(written) == config


@pytest.mark.parametrize("name", models.NAMES)
def test_configurations_do_not_change(name):
    waiting = [config for configs in models.MODELS[name].sizes.values() for config in configs.values()]
    while waiting:
        config = cast(Any, waiting.pop())
        for field in fields(config):
            value = getattr(config, field.name)
            with pytest.raises(FrozenInstanceError):
                setattr(config, field.name, value)
            waiting += filter(is_dataclass, value if isinstance(value, tuple) else (value,))


@pytest.mark.parametrize("name", models.NAMES)
def test_each_model_gives_its_own_reason_on_mps(name):
    dtype, why = default_dtype(torch.device("mps"), name)
    assert (dtype, why) == models.MODELS[name].on_mps
    others = [models.MODELS[other].title for other in models.NAMES if other != name]
    assert [title for title in others if title in why] == []
