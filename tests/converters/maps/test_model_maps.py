"""The maps of MARS5 and MetaVoice against the names and shapes of the full-size published checkpoints."""

import json
import math
import re
from pathlib import Path

import pytest

from benchmarks.checkpoints import FIRST_STAGE, SECOND_STAGE
from converters.maps.layouts import layouts, recognize
from converters.rules.plan import Move, dropped, plan
from tts_core import models
from tts_core.errors import CheckpointError
from tts_core.mars5 import config as mars5
from tts_core.mars5.spec import MARS5_AR, MARS5_NAR
from tts_core.metavoice import config as metavoice

KEYS = Path(__file__).parents[2] / "data/keys"
Shapes = dict[str, tuple[int, ...]]

META = {"meta": {"speaker_cond": True, "speaker_emb_size": 256}}
# layout → configuration of its shapes, tensors and numbers in the file by its table, targets
LISTS = {
    "mars5_ar": (mars5.codec_lm_from_shapes, 273, 737_788_417 + 3072 * 8196, 273),
    "mars5_nar": (mars5.residual_transformer_from_shapes, 487, 450_232_331 + 1024 * 2051, 487),
    "metavoice_first_stage": (
        lambda shapes: metavoice.read_first_stage({"model_args": FIRST_STAGE, **META}, shapes),
        173,
        1_243_191_296 + 2562 * 2048,  # the head is also in the file
        172,
    ),
    "metavoice_second_stage": (
        lambda shapes: metavoice.read_second_stage({"model_args": SECOND_STAGE, **META}, shapes),
        47,
        14_459_136,
        47,
    ),
    "metavoice_speaker_encoder": (metavoice.read_speaker_encoder, 16, 1_423_616 + 2, 14),
}


def key_list(name: str) -> Shapes:
    return {key: tuple(shape) for key, shape in json.loads((KEYS / f"{name}.json").read_text()).items()}


def plan_list(layout: str, shapes: Shapes) -> list[Move]:
    config = LISTS[layout][0](key_list(layout))
    return plan(
        layouts()[layout].rules(config),
        shapes,
        models.network(layouts()[layout].kind).parameter_shapes(config),
    )


@pytest.mark.parametrize("layout", LISTS)
def test_full_size_list_is_recognised_and_planned(layout):
    shapes = key_list(layout)
    read, tensors, numbers, targets = LISTS[layout]
    assert (len(shapes), sum(map(math.prod, shapes.values()))) == (tensors, numbers)
    assert recognize(list(shapes), {}) == layout
    moves = plan_list(layout, shapes)
    left = dropped(layouts()[layout].rules(read(shapes)), shapes)
    assert len(moves) == targets
    assert sorted([*left, *(source for move in moves for source in move.sources)]) == sorted(shapes)


def test_every_list_is_told_from_all_others():
    for keys in sorted(path.stem for path in KEYS.glob("*.json")):
        found = recognize(list(key_list(keys)), {})
        assert found is not None
        model = found.removesuffix("_published")
        assert keys.startswith(model) or (keys, found) == ("multi_band_diffusion", "mbd"), (keys, found)


def test_sizes_of_mars5_come_from_the_shapes():
    assert mars5.codec_lm_from_shapes(key_list("mars5_ar")) == MARS5_AR
    assert mars5.residual_transformer_from_shapes(key_list("mars5_nar")) == MARS5_NAR


@pytest.mark.parametrize("layout", ["metavoice_first_stage", "metavoice_second_stage"])
def test_names_of_a_compiled_model(layout):
    shapes = {f"_orig_mod.{name}": shape for name, shape in key_list(layout).items()}
    assert recognize(list(shapes), {}) == layout
    plain = {move.target: move for move in plan_list(layout, key_list(layout))}
    for move in plan_list(layout, shapes):
        assert tuple(f"_orig_mod.{name}" for name in plain[move.target].sources) == move.sources
    both = shapes | {"transformer.wpe.weight": shapes["_orig_mod.transformer.wpe.weight"]}
    with pytest.raises(CheckpointError, match="filled twice"):
        plan_list(layout, both)


def test_the_tied_head_is_made_of_both_of_its_tensors():
    moves = {
        move.target: move for move in plan_list("metavoice_first_stage", key_list("metavoice_first_stage"))
    }
    tied = moves["transformer.wtes.0.weight"]
    assert tied.sources == ("transformer.wtes.0.weight", "lm_heads.0.weight")
    assert "lm_heads.0.weight" not in moves


@pytest.mark.parametrize("layout", LISTS)
def test_any_tensor_missing_or_of_another_shape_is_named(layout):
    shapes = key_list(layout)
    left = dropped(layouts()[layout].rules(LISTS[layout][0](shapes)), shapes)
    needed = [name for name in shapes if name not in left]
    for name in needed[:: max(1, len(needed) // 6)]:
        with pytest.raises(CheckpointError, match=re.escape(name)):
            plan_list(layout, {key: shape for key, shape in shapes.items() if key != name})
        with pytest.raises(CheckpointError, match=re.escape(name)):
            plan_list(layout, shapes | {name: (*shapes[name], 1)})
