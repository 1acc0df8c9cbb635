"""Zips as torch.save writes them; any other is refused."""

import warnings
import zipfile
from pathlib import Path

import pytest

from tests.converters.files.opcodes import START, entries, storage, tensor, text, write_zip
from tests.converters.folders import DAC_PTH
from tts_core.errors import CheckpointError
from tts_core.files.bounded import BoundedReader
from tts_core.files.torch_file import TorchFile, read_torch_file

torch = pytest.importorskip("torch", reason="torch reads pickles")


def read(path: Path) -> TorchFile:
    with open(path, "rb", buffering=0) as raw, BoundedReader(raw) as file:
        return read_torch_file(file)


def refusal(path: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        read(path)
    return str(caught.value)


@pytest.mark.parametrize("zipped", [True, False])
def test_a_pickle_and_the_places_of_its_storages(tmp_path, zipped):
    saved = {"a": torch.ones(3), "b": torch.zeros(5).half()}
    torch.save(saved, tmp_path / "x.pt", _use_new_zipfile_serialization=zipped)
    found, data = read(tmp_path / "x.pt"), (tmp_path / "x.pt").read_bytes()
    assert [found.content[name].shape for name in "ab"] == [(3,), (5,)]
    for name, content in {"a": 3 * b"\0\0\x80\x3f", "b": bytes(10)}.items():
        begin = found.begins[found.content[name].storage.key]
        assert data[begin:][: len(content)] == content


def rezip(source: Path, target: Path, compression: int, skip: str = "") -> None:
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", compression) as new:
        for name in old.namelist():
            if not skip or not name.endswith(skip):
                new.writestr(name, old.read(name))


def test_compressed_or_foreign_zip(tmp_path):
    rezip(DAC_PTH, tmp_path / "small.pth", zipfile.ZIP_DEFLATED)
    assert "compressed after saving" in refusal(tmp_path / "small.pth")
    rezip(DAC_PTH, tmp_path / "other.pth", zipfile.ZIP_STORED, skip="data.pkl")
    assert "no data.pkl" in refusal(tmp_path / "other.pth")


def test_a_flipped_bit_among_the_names(tmp_path):
    data = bytearray(DAC_PTH.read_bytes())
    data[data.index(b"encoder.block.0.bias") + 3] ^= 1
    (tmp_path / "x.pth").write_bytes(data)
    assert "Bad CRC-32" in refusal(tmp_path / "x.pth")


@pytest.mark.parametrize("other", ["x/DATA.PKL", "x/data/0"])
def test_a_member_that_two_readers_may_confuse(tmp_path, other):
    path = write_zip(tmp_path / "x.pt", START + entries(text("a"), tensor()) + b".")
    with warnings.catch_warnings(action="ignore"), zipfile.ZipFile(path, "a") as archive:
        archive.writestr(other, b"other")
    assert "the same member twice" in refusal(path)


def test_members_outside_the_file(tmp_path):
    path = write_zip(tmp_path / "x.pt", START + entries(text("a"), tensor()) + b".")
    data = bytearray(path.read_bytes())
    at = data.rindex(b"PK\x01\x02", 0, data.rindex(b"x/data/0"))
    for place in (20, 24):
        data[at + place : at + place + 4] = (10_000).to_bytes(4, "little")
    path.write_bytes(data)
    assert "x/data/0 reaches beyond the file's end" in refusal(path)


def test_a_member_without_its_head(tmp_path):
    path = write_zip(tmp_path / "x.pt", START + entries(text("a"), tensor()) + b".")
    data = bytearray(path.read_bytes())
    data[data.index(b"x/data/0") - 30] ^= 1
    path.write_bytes(data)
    assert "no head of x/data/0" in refusal(path)


@pytest.mark.parametrize("kinds", [("Float", "Double"), ("Float", "Half")])
def test_a_storage_has_one_size_in_bytes(tmp_path, kinds):
    """As many numbers of another type are another size."""
    views = [tensor(held=storage().replace(b"FloatStorage", f"{kind}Storage".encode())) for kind in kinds]
    write_zip(tmp_path / "x.pth", START + entries(text("a"), views[0], text("b"), views[1]) + b".")
    assert "storage" in refusal(tmp_path / "x.pth")
