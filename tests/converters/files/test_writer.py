"""Written files: opened strictly, in shards, aligned."""

import json

import numpy as np
import pytest

from converters import convert as converting
from converters.convert import PartOutline, convert
from converters.files.writer import SafetensorsWriter, TensorEntry, shards
from converters.published import open_published
from tests.converters.folders import assert_same, left_in, read_all
from tts_core.errors import CheckpointError
from tts_core.files.header import read_header


@pytest.mark.parametrize(
    ("change", "said"),
    [({"surprise": 1}, "unknown surprise"), ({"delay_pattern": [0]}, "delay"), ({"dtype": "int7"}, "int7")],
)
def test_a_configuration_that_does_not_fit_is_found_out(source, tmp_path, monkeypatch, change, said):
    config = PartOutline.config
    monkeypatch.setattr(PartOutline, "config", lambda self: config(self) | change)
    with pytest.raises(CheckpointError, match=said):
        convert(source, tmp_path / "out")
    assert left_in(tmp_path) == []


@pytest.mark.parametrize("length", range(1, 9))
def test_numbers_begin_at_a_multiple_of_8(tmp_path, length):
    """As the format asks, for readers that map the file; wide numbers come before narrow ones."""
    entries = [
        TensorEntry("a" * length, "BF16", (3,)),
        TensorEntry("b", "I64", (1,)),
        TensorEntry("c", "F32", (1,)),
    ]
    writer = SafetensorsWriter(tmp_path / "x.safetensors", entries)
    writer.abort()
    stored, _ = read_header(tmp_path / "x.safetensors")
    assert [stored[entry.name].begin % 8 for entry in entries[1:]] == [0, 0]
    assert stored["a" * length].begin % 2 == 0


def test_shards_are_filled_in_order_and_keep_groups_together():
    groups = [[TensorEntry(f"{i}.{part}", "U8", (4,)) for part in "ab"] for i in range(5)]
    names = [[entry.name for entry in file] for file in shards(groups, limit=20)]
    assert names == [["0.a", "0.b", "1.a", "1.b"], ["2.a", "2.b", "3.a", "3.b"], ["4.a", "4.b"]]
    assert len(shards(groups, limit=1)) == 5
    assert len(shards(groups, limit=16)) == 3  # two groups fill a file


def test_sharded_folder_reads_back(source, tmp_path, monkeypatch):
    monkeypatch.setattr(converting, "shards", lambda groups: shards(groups, limit=500_000))
    convert(source, tmp_path / "out")
    index = json.loads((tmp_path / "out/model.safetensors.index.json").read_text())
    count = len(set(index["weight_map"].values()))
    assert count > 3
    assert f"model-00001-of-{count:05d}.safetensors" in left_in(tmp_path / "out")
    assert_same(read_all(open_published(tmp_path / "out").parts["dia"]), read_all(source.parts["dia"]))


def test_tensors_are_aligned_whatever_their_order(tmp_path):
    entries = [
        TensorEntry("a", "U8", (3,)),
        TensorEntry("b", "F32", (2,)),
        TensorEntry("c", "BF16", (5,)),
        TensorEntry("d", "F32", ()),
    ]
    made = SafetensorsWriter(tmp_path / "x.safetensors", entries)
    made.write("c", np.arange(5, dtype=np.uint16))
    made.write("a", np.arange(3, dtype=np.uint8))
    made.write("d", np.array(7, np.float32))
    made.write("b", np.arange(2, dtype=np.float32))
    made.close()
    stored, metadata = read_header(tmp_path / "x.safetensors")
    assert metadata == {"format": "mlx"}
    assert all(tensor.begin % {"F32": 4, "BF16": 2, "U8": 1}[tensor.dtype] == 0 for tensor in stored.values())
