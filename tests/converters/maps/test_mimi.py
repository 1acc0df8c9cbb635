"""The maps of Mimi against the names and shapes of the full-size published checkpoints."""

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from converters.maps.layouts import layouts, recognize
from converters.published import open_published
from converters.rules.plan import dropped, plan
from tests.golden.cases import DEFAULT
from tts_core.codecs import mimi
from tts_core.codecs.mimi import MIMI_24KHZ
from tts_core.errors import CheckpointError, SpeechError

KEYS = Path(__file__).parents[2] / "data/keys"
# from the tables of the published files: tensors, total of numbers
SIZES = {"mimi_transformers": (350, 96_151_393), "mimi_kyutai": (318, 96_151_393)}
TINY = DEFAULT / "dia2" / "mimi"


def key_list(name: str) -> dict[str, tuple[int, ...]]:
    return {key: tuple(shape) for key, shape in json.loads((KEYS / f"{name}.json").read_text()).items()}


@pytest.mark.parametrize("name", SIZES)
def test_full_size_list_is_planned(name):
    shapes, rules = key_list(name), layouts()[name].rules(MIMI_24KHZ)
    assert (len(shapes), sum(map(math.prod, shapes.values()))) == SIZES[name]
    moves = plan(rules, shapes, mimi.parameter_shapes(MIMI_24KHZ))
    left = dropped(rules, shapes)
    assert len(left) == MIMI_24KHZ.n_codebooks
    claimed = {source for move in moves for source in move.sources}
    assert {*left, *claimed} == {*shapes}
    assert not claimed & {*left}


@pytest.mark.parametrize("name", SIZES)
def test_names_tell_the_layout(name):
    for keys in sorted(path.stem for path in KEYS.glob("*.json")):
        names = key_list(keys)
        matching = sum(bool(re.match(layouts()[name].names, each)) for each in names)
        if keys == name:
            assert matching == len(names), keys
            assert recognize(list(names), {}) == name
        else:
            assert 2 * matching < len(names), keys


@pytest.mark.parametrize("name", SIZES)
def test_any_tensor_missing_or_of_another_shape_is_named(name):
    shapes, rules = key_list(name), layouts()[name].rules(MIMI_24KHZ)
    targets = mimi.parameter_shapes(MIMI_24KHZ)
    needed = sorted(shapes.keys() - dropped(rules, shapes).keys())
    for key in needed[:: len(needed) // 20]:
        with pytest.raises(CheckpointError, match=re.escape(key)):
            plan(rules, {other: shape for other, shape in shapes.items() if other != key}, targets)
        with pytest.raises(CheckpointError, match=re.escape(key)):
            plan(rules, shapes | {key: (*shapes[key], 1)}, targets)


def test_both_layouts_hold_the_same_numbers(tmp_path):
    """kyutai's file needs transformers' config.json beside it where the sizes are not the published ones."""
    theirs = tmp_path / "kyutai"
    theirs.mkdir()
    (theirs / "model.safetensors").write_bytes((TINY / "kyutai/tokenizer.safetensors").read_bytes())
    (theirs / "config.json").write_bytes((TINY / "config.json").read_bytes())
    [first] = open_published(TINY, parts=["mimi"]).parts.values()
    [second] = open_published(theirs, parts=["mimi"]).parts.values()
    assert (first.layout, second.layout) == ("mimi_transformers", "mimi_kyutai")
    assert first.config == second.config
    for name in first.names():
        np.testing.assert_array_equal(first.read(name), second.read(name), err_msg=name)


def test_other_sizes_than_the_published_ones_need_a_configuration():
    with pytest.raises(CheckpointError, match=r"linear1\.weight has shape \(34, 20\), which gives"):
        open_published(TINY / "kyutai/tokenizer.safetensors", parts=["mimi"])
    shapes = key_list("mimi_kyutai")
    assert len(plan(layouts()["mimi_kyutai"].rules(MIMI_24KHZ), shapes, mimi.parameter_shapes(MIMI_24KHZ)))


def test_transformers_layout_needs_its_configuration(tmp_path):
    (tmp_path / "model.safetensors").write_bytes((TINY / "model.safetensors").read_bytes())
    with pytest.raises(SpeechError, match=r"config\.json of Mimi \(the codec\) beside"):
        open_published(tmp_path, parts=["mimi"], offline=True)


def test_an_entry_that_was_never_used_is_its_sum_over_the_floor(tmp_path):
    tensors = load_file(TINY / "model.safetensors")
    book = "quantizer.semantic_residual_vector_quantizer.layers.0.codebook"
    tensors[f"{book}.cluster_usage"][:2] = 0, 2e-6
    tensors[f"{book}.embed_sum"][:2] = 3e-5
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_bytes((TINY / "config.json").read_bytes())
    [part] = open_published(tmp_path, parts=["mimi"]).parts.values()
    np.testing.assert_allclose(part.read(f"{book}.embed")[:2], 3.0, rtol=1e-6)
