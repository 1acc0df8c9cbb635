"""Files of older torch, written byte by byte as it wrote them: read where that is safe, else named."""

import gzip
import io
import pickle
import struct
import tarfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from converters.files.pickles import TorchCheckpoint
from tests.converters.files.opcodes import (
    OLD_HEAD,
    ORDERED,
    REBUILD,
    START,
    entries,
    number,
    short,
    sizes,
    text,
    write_zip,
)
from tts_core.errors import CheckpointError

pytestmark = pytest.mark.rest

torch = pytest.importorskip("torch", reason="torch reads pickles")

MACHINE = pickle.dumps({"protocol_version": 1001, "little_endian": True, "type_sizes": {"int": 4}}, 2)
NUMBERS = np.arange(4, dtype="<f4")
REBUILD_1 = b"ctorch._utils\n_rebuild_tensor\n"


def short_text(content: str) -> bytes:
    return short(content.encode())


MACHINE_2 = (
    START + b"}q\x00(" + short(b"little_endian") + b"\x88" + short(b"protocol_version") + b"M\xe9\x03u."
)


def held(written: Callable[[str], bytes] = text, kind: bytes = b"ctorch\nFloatStorage\n") -> bytes:
    """A storage."""
    return b"(" + written("storage") + kind + written("0") + written("cpu") + number(4) + b"NtQ"


def tensor(storage: bytes, rebuild: bytes = REBUILD) -> bytes:
    """A tensor of four numbers."""
    hooks = b"\x89" + ORDERED + b")R" if rebuild == REBUILD else b""
    return rebuild + b"(" + storage + b"K\x00" + sizes([4]) + sizes([1]) + hooks + b"tR"


def old(path: Path, content: bytes, written: Callable[[str], bytes] = text, machine: bytes = MACHINE) -> Path:
    """A file of torch < 1.6 with one storage."""
    order = START + b"]" + written("0") + b"a."
    path.write_bytes(
        OLD_HEAD + machine + START + content + b"." + order + struct.pack("<q", 4) + NUMBERS.tobytes()
    )
    return path


OLD = {
    "text of Python 2": (entries(short_text("a"), tensor(held(short_text))), short_text, MACHINE_2),
    "an OrderedDict of Python 2": (
        ORDERED + b"(](](" + short_text("a") + tensor(held(short_text)) + b"eetR",
        short_text,
        MACHINE_2,
    ),
    "torch < 0.4": (entries(text("a"), tensor(held(), REBUILD_1)), text, MACHINE),
    "torch < 0.4 and Python 2": (
        entries(short_text("a"), tensor(held(short_text), REBUILD_1)),
        short_text,
        MACHINE_2,
    ),
    "a storage of CUDA": (
        entries(text("a"), tensor(held(kind=b"ctorch.cuda\nFloatStorage\n"))),
        text,
        MACHINE,
    ),
}


@pytest.mark.parametrize("case", OLD)
def test_what_older_torch_saved_is_read(tmp_path: Path, case: str) -> None:
    content, written, machine = OLD[case]
    path = old(tmp_path / "x.pt", content, written, machine)
    with warnings.catch_warnings(action="ignore"):
        theirs = torch.load(path, weights_only=False, encoding="utf-8")  # torch itself agrees
    np.testing.assert_array_equal(theirs["a"].numpy(), NUMBERS)
    checkpoint = TorchCheckpoint(path)
    assert checkpoint.shapes == {"a": (4,)}
    np.testing.assert_array_equal(checkpoint.read("a"), NUMBERS)


@pytest.mark.parametrize(
    ("order", "count", "said"),
    [
        (text("1"), 4, "its storages are not those of its tensors"),
        (b"K\x00", 4, "its storages are not those of its tensors"),
        (text("0"), 3, "storage 0 has another size"),
    ],
)
def test_storages_of_an_old_file_are_those_of_its_tensors(
    tmp_path: Path, order: bytes, count: int, said: str
) -> None:
    content = entries(text("a"), tensor(held()))
    path = old(tmp_path / "x.pt", content)
    end = START + b"]" + text("0") + b"a." + struct.pack("<q", 4)
    changed = START + b"]" + order + b"a." + struct.pack("<q", count)
    path.write_bytes(path.read_bytes().replace(end, changed))
    with pytest.raises(CheckpointError, match=f"corrupt: {said}; fetch it again"):
        TorchCheckpoint(path)


def test_the_first_tensors_of_torch_in_a_zip_are_read(tmp_path: Path) -> None:
    storage = b"(" + text("storage") + b"ctorch\nFloatStorage\n" + text("0") + text("cpu") + number(4) + b"tQ"
    content = START + entries(text("a"), tensor(storage, REBUILD_1)) + b"."
    path = write_zip(tmp_path / "x.pt", content, _0=NUMBERS.tobytes())
    np.testing.assert_array_equal(TorchCheckpoint(path).read("a"), NUMBERS)


@pytest.mark.parametrize("zipped", [True, False])
def test_protocol_3_is_read(tmp_path: Path, zipped: bool) -> None:
    tensors = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.ones(4).half()}
    content = {"state_dict": tensors, "epoch": 3, "name": "x"}
    path = tmp_path / "x.pt"
    torch.save(content, path, pickle_protocol=3, _use_new_zipfile_serialization=zipped)
    checkpoint = TorchCheckpoint(path)
    assert checkpoint.metadata == {"epoch": 3, "name": "x"}
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(checkpoint.read(name), tensor.float().numpy())


def refusal(path: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        TorchCheckpoint(path)
    said = str(caught.value)
    assert "corrupt" not in said
    assert "\n" not in said
    return said.removeprefix(f"{path}: ")


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("protocol", [0, 1, 4, 5])
def test_other_protocols_are_named(tmp_path: Path, protocol: int, zipped: bool) -> None:
    path = tmp_path / "x.pt"
    torch.save({"a": torch.ones(2)}, path, pickle_protocol=protocol, _use_new_zipfile_serialization=zipped)
    name = str(protocol) if protocol > 1 else "0 or 1"
    assert refusal(path).startswith(
        f"refused: pickle protocol {name}; only 2, which torch.save writes, and 3"
    )


@pytest.mark.parametrize("zipped", [True, False])
def test_a_whole_module_is_named(tmp_path: Path, zipped: bool) -> None:
    torch.save(torch.nn.Linear(2, 2), tmp_path / "x.pt", _use_new_zipfile_serialization=zipped)
    assert refusal(tmp_path / "x.pt").startswith(
        "refused: a whole module, with its code (torch.nn.modules.linear.Linear); save its state_dict instead"
    )


def test_a_script_is_named(tmp_path: Path) -> None:
    with warnings.catch_warnings(action="ignore"):  # scripting is deprecated; files of it remain
        torch.jit.save(torch.jit.trace(torch.nn.Linear(2, 2), torch.ones(1, 2)), tmp_path / "x.pt")
    assert refusal(tmp_path / "x.pt").startswith("a TorchScript program, which is code and not weights; ")


def tar(path: Path) -> None:
    """A file of torch < 0.1.10."""
    storage = START + b"(K\x05" + text("cpu") + b"ctorch\nFloatStorage\nt." + struct.pack("<q", 4)
    view = START + b"(K\x06K\x05ctorch\nFloatTensor\nt." + struct.pack("<i4xqqq", 1, 4, 1, 0)
    members = {
        "sys_info": MACHINE,
        "pickle": START + entries(text("a"), b"K\x06Q") + b".",
        "storages": pickle.dumps(1, 2) + storage + NUMBERS.tobytes() + pickle.dumps([], 2),
        "tensors": pickle.dumps(1, 2) + view,
    }
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))


def test_a_tar_is_named(tmp_path: Path) -> None:
    tar(tmp_path / "x.pt")
    with warnings.catch_warnings(action="ignore"):
        theirs: Any = torch.load(tmp_path / "x.pt", weights_only=False)  # it is one that torch reads
    np.testing.assert_array_equal(theirs["a"].numpy(), NUMBERS)
    assert refusal(tmp_path / "x.pt").startswith(
        "refused: a tar, as torch < 0.1.10 saved, which torch cannot read without code; where you"
    )


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (gzip.compress(b"weights", mtime=0), "refused: it was compressed by gzip; unpack it"),
        (pickle.dumps({"a": np.ones(2)}, 2), "refused: a pickle, but not one that torch.save wrote"),
        (pickle.dumps({"a": np.ones(2)}, 5), "refused: a pickle, but not one that torch.save wrote"),
        (b"<!DOCTYPE html><html>", "refused: not a file that torch.save wrote"),
        (OLD_HEAD[:-1], "refused: a pickle, but not one that torch.save wrote"),
    ],
)
def test_other_files_are_named(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "x.pt").write_bytes(content)
    assert refusal(tmp_path / "x.pt").startswith(f"{said}; nothing of it was run")
