"""Every map against the names and shapes of the full-size published checkpoints."""

import json
import re
from pathlib import Path

import pytest

from benchmarks.checkpoints import DAC_CONFIG, DIA_CONFIG
from converters.maps.layouts import layouts, recognize
from converters.rules.plan import dropped, plan
from tts_core import models
from tts_core.codecs import dac
from tts_core.dia import config as dia
from tts_core.errors import CheckpointError

KEYS = Path(__file__).parents[2] / "data/keys"
CONFIGS = {"dia": dia.read_published(DIA_CONFIG), "dac": dac.read_transformers(DAC_CONFIG)}
LISTS = {
    "dia_nari": "dia_nari",
    "dia_transformers": "dia_transformers",
    "dac_descript": "dac_descript",
    "dac_descript_parametrized": "dac_descript",
    "dac_transformers": "dac_transformers",
}
COUNTS = {"dia_nari": 343, "dia_transformers": 335, "dac_transformers": 223}


def key_list(name: str) -> dict[str, tuple[int, ...]]:
    return {key: tuple(shape) for key, shape in json.loads((KEYS / f"{name}.json").read_text()).items()}


def plan_list(layout: str, shapes: dict[str, tuple[int, ...]]):
    config = CONFIGS[layouts()[layout].kind]
    return plan(
        layouts()[layout].rules(config),
        shapes,
        models.network(layouts()[layout].kind).parameter_shapes(config),
    )


@pytest.mark.parametrize(("keys", "layout"), LISTS.items())
def test_full_size_list_is_recognised_and_planned(keys, layout):
    shapes = key_list(keys)
    assert len(shapes) == COUNTS.get(keys, 301)
    assert recognize(list(shapes), {}) == layout
    moves = plan_list(layout, shapes)
    assert sorted(source for move in moves for source in move.sources) == sorted(shapes)
    assert dropped(layouts()[layout].rules(CONFIGS[layouts()[layout].kind]), shapes) == {}


def test_plain_descript_weights():
    shapes = {
        re.sub("weight_v$", "weight", name): shape
        for name, shape in key_list("dac_descript").items()
        if not name.endswith("weight_g")
    }
    assert recognize(list(shapes), {}) == "dac_descript"
    assert len(plan_list("dac_descript", shapes)) == COUNTS["dac_transformers"]


def test_fused_qkv_takes_the_place_of_three_kernels():
    shapes = key_list("dia_nari")
    for part, count, rows, width in (("encoder", 12, 6144, 1024), ("decoder", 18, 3072, 2048)):
        for i in range(count):
            for p in "qkv":
                del shapes[f"{part}.layers.{i}.self_attention.{p}_proj.weight"]
            shapes[f"{part}.layers.{i}.self_attention.qkv.linear.weight"] = (rows, width)
    moves = {move.target: move for move in plan_list("dia_nari", shapes)}
    assert moves["model.decoder.layers.3.self_attention.k_proj.weight"].how.name == "rows[2048:2560]"
    shapes["decoder.layers.3.self_attention.k_proj.weight"] = (2048, 4, 128)
    with pytest.raises(CheckpointError, match="filled twice"):
        plan_list("dia_nari", shapes)


@pytest.mark.parametrize(("keys", "layout"), LISTS.items())
def test_any_tensor_missing_or_of_another_shape_is_named(keys, layout):
    shapes = key_list(keys)
    for name in list(shapes)[:: max(1, len(shapes) // 12)]:
        with pytest.raises(CheckpointError, match=re.escape(name)):
            plan_list(layout, {key: shape for key, shape in shapes.items() if key != name})
        with pytest.raises(CheckpointError, match=re.escape(name)):
            plan_list(layout, shapes | {name: (*shapes[name], 1)})
