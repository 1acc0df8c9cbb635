"""Sets of shards: without their index, not complete, of pickles, beside a whole file."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from converters.published import open_published
from tests.converters.folders import DAC_HF, V_V01, assert_same, read_all
from tests.converters.test_published import nari_tensors, shard
from tests.tiny.qwen3 import write_published
from tests.tiny.qwen3_finetuned import write_finetuned
from tts_core.errors import CheckpointError

torch = pytest.importorskip("torch", reason="torch is not installed: it writes the pickles")
INDEX = "model.safetensors.index.json"
SHARDS = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model in two shards, with their index."""
    shard(write_published(tmp_path / "qwen3"))
    return tmp_path / "qwen3"


@pytest.mark.parametrize("given", ["", *SHARDS])
def test_shards_without_their_index_are_read_together(folder, given):
    expected = read_all(open_published(folder, offline=True).parts["qwen3"])
    (folder / INDEX).unlink()
    codec = folder / "speech_tokenizer" if given else None
    found = open_published(folder / given, codec=codec, offline=True).parts["qwen3"]
    assert found.files == [folder / name for name in SHARDS]
    assert_same(read_all(found), expected)


@pytest.mark.parametrize("given", ["", SHARDS[1]])
def test_one_of_two_shards_is_named(folder, given):
    for name in (INDEX, SHARDS[0]):
        (folder / name).unlink()
    with pytest.raises(
        CheckpointError, match=rf"{SHARDS[1]}: one of 2 shards, 1 is there; fetch all of them"
    ):
        open_published(folder / given, codec=folder / "speech_tokenizer", offline=True)


@pytest.mark.parametrize("given", ["", "pytorch_model-00001-of-00002.bin"])
def test_sharded_pickles_are_named(tmp_path, given):
    shutil.copy(V_V01 / "config.json", tmp_path)
    tensors = {name: torch.from_numpy(each) for name, each in nari_tensors().items()}
    for number in (1, 2):
        half = dict(list(tensors.items())[number - 1 :: 2])
        torch.save(half, tmp_path / f"pytorch_model-0000{number}-of-00002.bin")
    with pytest.raises(
        CheckpointError, match=r"-00001-of-00002.bin: one of 2 shards, which are read as"
    ) as found:
        open_published(tmp_path / given, codec=DAC_HF, offline=True)
    assert "do not fit" not in str(found.value)


def whole(folder: Path) -> dict[str, np.ndarray]:
    """Write a whole file beside the shards, with other numbers."""
    tensors = {name: each for file in SHARDS for name, each in load_file(folder / file).items()}
    tensors["talker.model.norm.weight"] = tensors["talker.model.norm.weight"] + 1
    save_file(tensors, folder / "model.safetensors")
    return tensors


@pytest.mark.parametrize("gone", [(), (SHARDS[0],), tuple(SHARDS), (INDEX,), (INDEX, SHARDS[1])])
def test_a_whole_file_rules_over_a_stale_index_and_over_shards(folder, gone):
    tensors = whole(folder)
    for name in gone:
        (folder / name).unlink()
    for given, codec in ((folder, None), (folder / "model.safetensors", folder / "speech_tokenizer")):
        found = open_published(given, codec=codec, offline=True).parts["qwen3"]
        assert found.files == [folder / "model.safetensors"]
        assert_same(read_all(found), tensors)


def test_the_index_of_a_base_beside_the_file_of_its_fine_tuned_copy(tmp_path):
    """MLX's converters write an index of one file; the script replaces the file, without its encoder."""
    base = write_published(tmp_path / "base", "base")
    names = load_file(base / "model.safetensors")
    made = write_finetuned(tmp_path / "made")
    listed = ", ".join(f'"{name}": "model.safetensors"' for name in names)
    (made / INDEX).write_text(f'{{"weight_map": {{{listed}}}}}')
    assert open_published(made, offline=True).parts["qwen3"].files == [made / "model.safetensors"]
