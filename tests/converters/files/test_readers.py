"""Readers: what the libraries wrote comes back, and every damaged or hostile file is one clear error."""

import io
import json
import os
import pickle
import sys
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest

from converters.files.readers import SafetensorsCheckpoint, TorchCheckpoint, read_index
from tests.converters.folders import DAC_PTH, V_0626, V_0626_HF, write_raw, write_safetensors
from tts_core.errors import CheckpointError, NotFoundError
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
    with pytest.raises(CheckpointError, match="corrupt: the header describes"):
        SafetensorsCheckpoint([path])


ENTRY = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    ("header", "said"),
    [
        (b"not json", "header"),
        (b"[1, 2]", "not an object"),
        (b"\xff\xfe{}", "header"),
        (b"[" * 200_000, "header"),
        (json.dumps({"__metadata__": {"a": 1}}).encode(), "__metadata__"),
        (b'{"a": %s, "a": %s}' % ((json.dumps(ENTRY).encode(),) * 2), "it has a twice"),
        (json.dumps({"a": {"dtype": "F32"}}).encode(), "exactly dtype, shape and data_offsets"),
        (json.dumps({"a": ENTRY | {"dtype": "F31"}}).encode(), "unknown dtype 'F31'"),
        (json.dumps({"a": ENTRY | {"dtype": ["F32"]}}).encode(), "unknown dtype"),
        (json.dumps({"a": ENTRY | {"shape": [-2]}}).encode(), "expected lists of sizes"),
        (json.dumps({"a": ENTRY | {"shape": [2.0]}}).encode(), "expected lists of sizes"),
        (json.dumps({"a": ENTRY | {"shape": [True, 2]}}).encode(), "expected lists of sizes"),
        (json.dumps({"a": ENTRY | {"shape": [2**62, 2**62]}}).encode(), "takes 8 bytes"),
        (json.dumps({"a": ENTRY | {"data_offsets": [0, 4]}}).encode(), "takes 4 bytes"),
        (json.dumps({"a": ENTRY | {"data_offsets": [8, 0]}}).encode(), "takes -8 bytes"),
        (json.dumps({"a": ENTRY | {"data_offsets": [4, 12]}}).encode(), "a follows a hole"),
        (json.dumps({"a": ENTRY, "b": ENTRY | {"data_offsets": [4, 12]}}).encode(), "b overlaps"),
        (json.dumps({"a": ENTRY, "b": ENTRY}).encode(), "b overlaps"),
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
        ({"zero": "one.safetensors"}, "differs from one.safetensors in 1 tensors, zero"),
        ({"two": "../two.safetensors"}, "not the name of a safetensors file"),
        ({"two": "/etc/passwd"}, "not the name of a safetensors file"),
    ],
)
def test_index_that_does_not_match(tmp_path, places, said):
    with pytest.raises(CheckpointError, match=said):
        read_index(write_shards(tmp_path, **places))


def test_a_tensor_in_two_files(tmp_path):
    for name in ("one", "two"):
        write_safetensors(tmp_path / f"{name}.safetensors", {"a": np.ones(2, np.float32)})
    with pytest.raises(CheckpointError, match=r"a is also in one\.safetensors"):
        SafetensorsCheckpoint([tmp_path / "one.safetensors", tmp_path / "two.safetensors"])


# pickles


def test_pickle_with_metadata():
    pytest.importorskip("torch", reason="torch reads pickles")
    checkpoint = TorchCheckpoint(DAC_PTH)
    assert checkpoint.metadata["kwargs"]["latent_dim"] == 64
    assert len(checkpoint.shapes) == 301


def test_legacy_pickle_is_read_without_mapping(tmp_path):
    torch = pytest.importorskip("torch", reason="torch writes the file")
    tensors = torch.load(V_0626 / "dia-v1.pth", weights_only=True)
    torch.save(tensors, tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    checkpoint = TorchCheckpoint(tmp_path / "old.pth")
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(checkpoint.read(name), tensor.numpy())


def test_tensors_that_share_or_skip_storage(tmp_path):
    torch = pytest.importorskip("torch", reason="torch writes the file")
    base = torch.arange(12.0).reshape(3, 4)
    torch.save({"base": base, "t": base.T, "part": base[1:, 1:3]}, tmp_path / "x.pth")
    checkpoint = TorchCheckpoint(tmp_path / "x.pth")
    np.testing.assert_array_equal(checkpoint.read("t"), base.numpy().T)
    np.testing.assert_array_equal(checkpoint.read("part"), base.numpy()[1:, 1:3])


class Hostile:
    """Runs `touch` on unpickling, where that is allowed."""

    def __init__(self, target: Path):
        self.target = target

    def __reduce__(self):
        return os.system, (f"touch {self.target}",)


@pytest.mark.parametrize("form", ["zip", "legacy", "bare"])
def test_hostile_pickle_is_refused_and_does_nothing(tmp_path, form):
    torch = pytest.importorskip("torch", reason="torch reads pickles")
    path, proof = tmp_path / "dia.pth", tmp_path / "executed"
    content = {"a": torch.ones(2), "b": Hostile(proof)}
    if form == "bare":
        path.write_bytes(pickle.dumps(content))
    else:
        torch.save(content, path, _use_new_zipfile_serialization=form == "zip")
    with pytest.raises(CheckpointError, match=r"dia\.pth: refused: ") as caught:
        TorchCheckpoint(path)
    assert "\n" not in str(caught.value)
    assert form == "bare" or ".system, which is code" in str(caught.value)
    assert not proof.exists()


def test_truncated_pickle_at_every_member(tmp_path):
    pytest.importorskip("torch", reason="torch reads pickles")
    data = DAC_PTH.read_bytes()
    with zipfile.ZipFile(DAC_PTH) as archive:
        cuts = {member.header_offset for member in archive.infolist()[::20]}
        cuts |= {member.header_offset + 30 for member in archive.infolist()[:2]}
        cuts |= {archive.start_dir, archive.start_dir + 1, len(data) - 1, 0, 3, 4}
    path = tmp_path / "x.pth"
    for cut in sorted(cuts):
        path.write_bytes(data[:cut])
        with pytest.raises(CheckpointError) as caught:
            TorchCheckpoint(path)
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ([1, 2], "holds a list"),
        ({}, "expected a dict of tensors"),
        ({"a": 3}, "'a' is a int"),
        ({"state_dict": {"a": "text"}}, "'a' is a str"),
    ],
)
def test_pickles_of_other_things(tmp_path, content, said):
    torch = pytest.importorskip("torch", reason="torch writes the file")
    torch.save(content, tmp_path / "x.pth")
    with pytest.raises(CheckpointError, match=said):
        TorchCheckpoint(tmp_path / "x.pth")


def test_sparse_tensor(tmp_path):
    torch = pytest.importorskip("torch", reason="torch writes the file")
    torch.save({"a": torch.eye(3).to_sparse()}, tmp_path / "x.pth")
    with pytest.raises(CheckpointError, match="a is not a plain dense tensor"):
        TorchCheckpoint(tmp_path / "x.pth")


def rezip(source: Path, target: Path, compression: int, skip: str = "") -> None:
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", compression) as new:
        for name in old.namelist():
            if not skip or not name.endswith(skip):
                new.writestr(name, old.read(name))


def test_compressed_or_foreign_zip(tmp_path):
    pytest.importorskip("torch", reason="torch reads pickles")
    rezip(DAC_PTH, tmp_path / "small.pth", zipfile.ZIP_DEFLATED)
    with pytest.raises(CheckpointError, match="compressed after saving"):
        TorchCheckpoint(tmp_path / "small.pth")
    rezip(DAC_PTH, tmp_path / "other.pth", zipfile.ZIP_STORED, skip="data.pkl")
    with pytest.raises(CheckpointError, match=r"no data\.pkl"):
        TorchCheckpoint(tmp_path / "other.pth")


def test_a_flipped_bit_among_the_names(tmp_path):
    pytest.importorskip("torch", reason="torch reads pickles")
    data = bytearray(DAC_PTH.read_bytes())
    data[data.index(b"encoder.block.0.bias") + 3] ^= 1
    (tmp_path / "x.pth").write_bytes(data)
    with pytest.raises(CheckpointError, match=r"Bad CRC-32"):
        TorchCheckpoint(tmp_path / "x.pth")


def test_a_pickle_saved_without_checksums(tmp_path):
    torch = pytest.importorskip("torch", reason="torch writes the file")
    torch.serialization.set_crc32_options(False)
    try:
        torch.save({"a": torch.ones(2)}, tmp_path / "x.pth")
    finally:
        torch.serialization.set_crc32_options(True)
    assert TorchCheckpoint(tmp_path / "x.pth").read("a").tolist() == [1, 1]


def test_scripted_model(tmp_path):
    torch = pytest.importorskip("torch", reason="torch writes the file")
    stream = io.BytesIO()
    with warnings.catch_warnings(action="ignore"):  # scripting is deprecated; files of it remain
        torch.jit.save(torch.jit.trace(torch.nn.Linear(2, 2), torch.ones(1, 2)), stream)
    (tmp_path / "x.pth").write_bytes(stream.getvalue())
    with pytest.raises(CheckpointError, match=r"x\.pth"):
        TorchCheckpoint(tmp_path / "x.pth")


def test_without_torch_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(NotFoundError, match=r"pip install 'mlx-port\[torch\]'"):
        TorchCheckpoint(DAC_PTH)
