"""The maps of EnCodec and Vocos against the names and shapes of the full-size published checkpoints."""

import json
import math
import re
from pathlib import Path

import pytest

from converters.maps.layouts import layouts
from converters.rules.plan import dropped, plan
from tts_core.codecs import encodec, vocos
from tts_core.codecs.encodec import ENCODEC_24KHZ
from tts_core.codecs.vocos import VOCOS_ENCODEC_24KHZ
from tts_core.errors import CheckpointError

KEYS = Path(__file__).parents[2] / "data/keys"
LISTS = {
    "encodec_facebook": layouts()["encodec_facebook"],
    "encodec_transformers": layouts()["encodec_transformers"],
    "encodec_transformers_parametrized": layouts()["encodec_transformers"],
    "vocos_charactr": layouts()["vocos_charactr"],
}
# from the tables of the published files: tensors, total of numbers, tensors that are dropped
SIZES = {name: (252, 23_273_218, 96) for name in LISTS} | {"vocos_charactr": (82, 10_082_690, 1)}


def key_list(name: str) -> dict[str, tuple[int, ...]]:
    return {key: tuple(shape) for key, shape in json.loads((KEYS / f"{name}.json").read_text()).items()}


def plan_list(name: str, shapes: dict[str, tuple[int, ...]]):
    if name == "vocos_charactr":
        return plan(
            LISTS["vocos_charactr"].rules(VOCOS_ENCODEC_24KHZ),
            shapes,
            vocos.parameter_shapes(VOCOS_ENCODEC_24KHZ),
        )
    return plan(LISTS[name].rules(ENCODEC_24KHZ), shapes, encodec.parameter_shapes(ENCODEC_24KHZ))


@pytest.mark.parametrize("name", LISTS)
def test_full_size_list_is_planned(name):
    shapes = key_list(name)
    tensors, numbers, not_carried = SIZES[name]
    assert (len(shapes), sum(map(math.prod, shapes.values()))) == (tensors, numbers)
    moves = plan_list(name, shapes)
    config = VOCOS_ENCODEC_24KHZ if name == "vocos_charactr" else ENCODEC_24KHZ
    left = dropped(LISTS[name].rules(config), shapes)
    assert len(left) == not_carried
    assert sorted([*left, *(source for move in moves for source in move.sources)]) == sorted(shapes)


@pytest.mark.parametrize("name", LISTS)
def test_names_tell_the_layout(name):
    """A layout has all of its own names and less than half of any other model's."""
    for keys in sorted(path.stem for path in KEYS.glob("*.json")):
        names = key_list(keys)
        matching = sum(bool(re.match(LISTS[name].names, each)) for each in names)
        if LISTS.get(keys) is LISTS[name]:
            assert matching == len(names), keys
        else:
            assert 2 * matching < len(names), keys


@pytest.mark.parametrize("name", ["encodec_facebook", "encodec_transformers"])
def test_other_forms_of_the_same_checkpoint(name):
    """With weight norm folded, and without tensors that only training needs."""
    shapes = {
        re.sub("weight_v$", "weight", key): shape
        for key, shape in key_list(name).items()
        if not key.endswith(("weight_g", "inited", "cluster_size", "embed_avg"))
    }
    assert len(plan_list(name, shapes)) == len(shapes) == len(encodec.parameter_shapes(ENCODEC_24KHZ))
    assert encodec.from_shapes(shapes) == ENCODEC_24KHZ


@pytest.mark.parametrize("name", [name for name in LISTS if name != "vocos_charactr"])
def test_sizes_come_from_the_shapes(name):
    assert encodec.from_shapes(key_list(name)) == ENCODEC_24KHZ


@pytest.mark.parametrize("name", LISTS)
def test_any_tensor_missing_or_of_another_shape_is_named(name):
    shapes = key_list(name)
    config = VOCOS_ENCODEC_24KHZ if name == "vocos_charactr" else ENCODEC_24KHZ
    needed = shapes.keys() - dropped(LISTS[name].rules(config), shapes).keys()
    for key in sorted(needed)[:: len(needed) // 12]:
        with pytest.raises(CheckpointError, match=re.escape(key)):
            plan_list(name, {other: shape for other, shape in shapes.items() if other != key})
        with pytest.raises(CheckpointError, match=re.escape(key)):
            plan_list(name, shapes | {key: (*shapes[key], 1)})
