"""Readers: files of the libraries are read back, and every damaged or hostile file is one clear error."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from converters.files.pickles import TorchCheckpoint
from converters.files.readers import SafetensorsCheckpoint, read_index
from tests.converters.folders import V_0626_HF, write_raw, write_safetensors
from tts_core.errors import CheckpointError
from tts_core.files.header import read_header

WEIGHTS = V_0626_HF / "model.safetensors"


def test_reads_what_the_library_wrote():
    safetensors = pytest.importorskip("safetensors.numpy")
    expected = safetensors.load_file(WEIGHTS)
    checkpoint = SafetensorsCheckpoint([WEIGHTS])
    assert checkpoint.metadata == {"format": "pt"}
    assert checkpoint.shapes == {name: tensor.shape for name, tensor in expected.items()}
    for name, tensor in expected.items():
        np.testing.assert_array_equal(checkpoint.read(name), tensor)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "int64", "uint8", "bool"])
def test_every_dtype_from_both_formats(tmp_path, dtype):
    torch = pytest.importorskip("torch", reason="torch writes the files")
    safetensors = pytest.importorskip("safetensors.torch")
    tensor = (torch.randn(3, 5, 2) * 3).to(getattr(torch, dtype))
    tensors = {"a": tensor, "empty": tensor[:0].clone(), "scalar": tensor[0, 0, 0].clone()}
    safetensors.save_file(tensors, tmp_path / "x.safetensors")
    torch.save(tensors, tmp_path / "x.pth")
    expected = tensor.float().numpy() if tensor.is_floating_point() else tensor.numpy()
    for checkpoint in (
        SafetensorsCheckpoint([tmp_path / "x.safetensors"]),
        TorchCheckpoint(tmp_path / "x.pth"),
    ):
        found = checkpoint.read("a")
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)
        if tensor.is_floating_point():
            parts = [piece.copy() for piece in checkpoint.blocks("a", 8)]
            assert [len(piece) for piece in parts] == [8, 8, 8, 6]
            np.testing.assert_array_equal(np.concatenate(parts), expected.reshape(-1))
            assert list(checkpoint.blocks("empty", 8)) == []
        assert checkpoint.shapes == {"a": (3, 5, 2), "empty": (0, 5, 2), "scalar": ()}
        assert checkpoint.read("empty").shape == (0, 5, 2)
        assert checkpoint.read("scalar").shape == ()
    assert checkpoint.dtypes == SafetensorsCheckpoint([tmp_path / "x.safetensors"]).dtypes


def test_truncated_at_every_tensor_boundary_and_inside_the_header(tmp_path):
    data = WEIGHTS.read_bytes()
    stored, _ = read_header(WEIGHTS)
    start = 8 + int.from_bytes(data[:8], "little")
    cuts = {0, 1, 7, 8, 9, start // 2, start - 1, start, start + 1}
    for tensor in stored.values():
        cuts |= {tensor.begin, tensor.end, tensor.end - 1}
    cuts -= {len(data)}
    path = tmp_path / "model.safetensors"
    for cut in sorted(cuts):
        path.write_bytes(data[:cut])
        with pytest.raises(CheckpointError) as caught:
            SafetensorsCheckpoint([path])
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)
    path.write_bytes(data + b"\0")
    with pytest.raises(CheckpointError, match="longer than its header says"):
        SafetensorsCheckpoint([path])


ENTRY = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    ("header", "said"),
    [
        (b"not json", "header"),
        (b"[1, 2]", "invalid type: sequence"),
        (b"\xff\xfe{}", "header"),
        (b"[" * 200_000, "header"),
        (json.dumps({"__metadata__": {"a": 1}}).encode(), "expected a string"),
        (json.dumps({"a": ENTRY | {"dtype": "F4", "shape": [16]}}).encode(), "dtype F4, which is not read"),
        (b'{"a": %s, "a": %s}' % ((json.dumps(ENTRY).encode(),) * 2), "it has a twice"),
        (json.dumps({"a": {"dtype": "F32"}}).encode(), "missing field `shape`"),
        (json.dumps({"a": ENTRY | {"dtype": "F31"}}).encode(), "unknown variant `F31`"),
        (json.dumps({"a": ENTRY | {"dtype": ["F32"]}}).encode(), "invalid type: sequence"),
        (json.dumps({"a": ENTRY | {"shape": [-2]}}).encode(), "integer `-2`, expected usize"),
        (json.dumps({"a": ENTRY | {"shape": [2.0]}}).encode(), "floating point `2.0`, expected usize"),
        (json.dumps({"a": ENTRY | {"shape": [True, 2]}}).encode(), "boolean `true`, expected usize"),
        (json.dumps({"a": ENTRY | {"shape": [2**62, 2**62]}}).encode(), "overflow"),
        (json.dumps({"a": ENTRY | {"data_offsets": [0, 4]}}).encode(), "invalid shape, data type, or offset"),
        (json.dumps({"a": ENTRY | {"data_offsets": [8, 0]}}).encode(), "invalid offset for tensor `a`"),
        (json.dumps({"a": ENTRY | {"data_offsets": [4, 12]}}).encode(), "invalid offset for tensor `a`"),
        (
            json.dumps({"a": ENTRY, "b": ENTRY | {"data_offsets": [4, 12]}}).encode(),
            "invalid offset for tensor `b`",
        ),
        (json.dumps({"a": ENTRY, "b": ENTRY}).encode(), "invalid offset for tensor"),
    ],
)
def test_corrupt_headers(tmp_path, header, said):
    write_raw(tmp_path / "x.safetensors", header, bytes(8))
    with pytest.raises(CheckpointError, match=said):
        SafetensorsCheckpoint([tmp_path / "x.safetensors"])


def test_a_file_that_shrinks_after_planning(tmp_path):
    path = tmp_path / "x.safetensors"
    write_safetensors(path, {"a": np.ones(100, np.float32)})
    checkpoint = SafetensorsCheckpoint([path])
    os.truncate(path, 200)
    with pytest.raises(CheckpointError, match="changed while it was read"):
        checkpoint.read("a")


@pytest.mark.parametrize(
    "read", [lambda found: found.read("a"), lambda found: [*found.blocks("a", 10)]], ids=["whole", "blocks"]
)
def test_a_file_that_is_replaced_by_one_of_the_same_size_after_planning(tmp_path, read):
    path = tmp_path / "x.safetensors"
    write_safetensors(path, {"a": np.ones(100, np.float32)})
    checkpoint = SafetensorsCheckpoint([path])
    write_safetensors(tmp_path / "y.safetensors", {"a": np.zeros(100, np.float32)})
    os.replace(tmp_path / "y.safetensors", path)
    with pytest.raises(CheckpointError, match="changed while it was read"):
        read(checkpoint)


def test_bfloat16_without_torch(tmp_path):
    write_safetensors(tmp_path / "x.safetensors", {"a": np.array([0x3F80, 0xC000], np.uint16)})
    assert SafetensorsCheckpoint([tmp_path / "x.safetensors"]).read("a").tolist() == [1.0, -2.0]


# shards


def write_shards(folder: Path, **places: str) -> Path:
    for name in ("one", "two"):
        write_safetensors(folder / f"{name}.safetensors", {name: np.ones(2, np.float32)})
    index = folder / "model.safetensors.index.json"
    index.write_text(
        json.dumps({"weight_map": {"one": "one.safetensors", "two": "two.safetensors"} | places})
    )
    return index


def test_index(tmp_path):
    files = read_index(write_shards(tmp_path))
    assert SafetensorsCheckpoint(files).shapes == {"one": (2,), "two": (2,)}


@pytest.mark.parametrize(
    ("places", "said"),
    [
        ({"three": "three.safetensors"}, "three.safetensors is not there, of 3 shards"),
        ({"two": "one.safetensors"}, "differs from one.safetensors"),
        ({"zero": "one.safetensors"}, "differs from one.safetensors in 1 tensor, zero"),
        ({"two": "../two.safetensors"}, "not the name of a safetensors file"),
        ({"two": "/etc/passwd"}, "not the name of a safetensors file"),
    ],
)
def test_index_that_does_not_match(tmp_path, places, said):
    with pytest.raises(CheckpointError, match=said):
        read_index(write_shards(tmp_path, **places))


def test_a_shard_with_a_tensor_that_its_index_does_not_list(tmp_path):
    index = write_shards(tmp_path)
    write_safetensors(
        tmp_path / "two.safetensors", {"two": np.ones(2, np.float32), "x": np.ones(2, np.float32)}
    )
    with pytest.raises(CheckpointError, match=r"differs from two.safetensors in 1 tensor, x among them"):
        read_index(index)


def test_a_tensor_in_two_files(tmp_path):
    for name in ("one", "two"):
        write_safetensors(tmp_path / f"{name}.safetensors", {"a": np.ones(2, np.float32)})
    with pytest.raises(CheckpointError, match=r"a is also in one\.safetensors"):
        SafetensorsCheckpoint([tmp_path / "one.safetensors", tmp_path / "two.safetensors"])
