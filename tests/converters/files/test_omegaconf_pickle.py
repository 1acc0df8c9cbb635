"""Pickles with OmegaConf objects: read to plain data, and anything else refused without running it."""

import io
import os
import pickle
import random
import subprocess
import sys
import tracemalloc
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from converters.files.omegaconf_pickle import OmegaConfCheckpoint, holds_omegaconf
from converters.files.restricted_pickle import ALLOWED, interpret
from tests.tiny.mbd import CONFIG, mbd_tensors, published_cfg, published_content, write_published
from tts_core.errors import CheckpointError

torch = pytest.importorskip("torch", reason="torch writes the files")


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("published") / "mbd_comp_8.pt"
    return write_published(path, published_content(CONFIG, mbd_tensors()))


def test_settings_are_plain_and_tensors_as_saved(published):
    checkpoint = OmegaConfCheckpoint(published)
    assert checkpoint.metadata["n_bands"] == 2
    for b, band in enumerate(CONFIG.bands):
        assert checkpoint.metadata[b]["cfg"] == published_cfg(band, CONFIG.sample_rate)
    parts = {"unet": "model_state", "processor": "processor_state"}
    saved = {}
    for name, tensor in mbd_tensors().items():
        _, b, part, rest = name.split(".", 3)
        saved[f"{b}.{parts[part]}.{rest}"] = tensor
    assert checkpoint.shapes == {name: tensor.shape for name, tensor in saved.items()}
    assert set(checkpoint.dtypes.values()) == {"F32"}
    for name, tensor in saved.items():
        np.testing.assert_array_equal(checkpoint.read(name), tensor)
    assert checkpoint.files == (published,)


def test_neither_omegaconf_nor_anything_is_imported(published, monkeypatch):
    for name in ("omegaconf", "omegaconf.dictconfig", "omegaconf.base"):
        monkeypatch.setitem(sys.modules, name, None)  # an import would raise
    before = dict(sys.modules)
    checkpoint = OmegaConfCheckpoint(published)
    checkpoint.read("0.model_state.embedding.weight")
    assert dict(sys.modules) == before


def test_pytorch_is_not_needed(published):
    code = (
        "import sys; sys.modules['torch'] = sys.modules['omegaconf'] = None\n"
        "from pathlib import Path; from converters.files.omegaconf_pickle import OmegaConfCheckpoint\n"
        "checkpoint = OmegaConfCheckpoint(Path(sys.argv[1]))\n"
        "print(len([checkpoint.read(name) for name in checkpoint.shapes]))"
    )
    ran = subprocess.run([sys.executable, "-c", code, published], capture_output=True, text=True, check=True)
    assert int(ran.stdout) == len(mbd_tensors())


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "int64", "uint8", "bool"])
def test_every_dtype_view_and_size(tmp_path, dtype):
    whole = (torch.randn(6, 5, 4) * 3).to(getattr(torch, dtype))
    views = {"a": whole, "part": whole[2:4], "turned": whole.permute(2, 0, 1), "every": whole[::2, :, 1::2]}
    views |= {"scalar": whole[0, 0, 0], "empty": whole[:0], "last": whole[5, 4, 3:]}
    checkpoint = OmegaConfCheckpoint(save(tmp_path, views))
    for name, tensor in views.items():
        expected = (tensor.float() if tensor.is_floating_point() else tensor).numpy()
        found = checkpoint.read(name)
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        np.testing.assert_array_equal(found, expected)


def test_a_module_s_state_dict_with_its_attribute(tmp_path):
    """torch.nn.Module.state_dict is an OrderedDict that carries `_metadata`."""
    module = torch.nn.Linear(2, 3)
    checkpoint = OmegaConfCheckpoint(save(tmp_path, {"state": module.state_dict()}))
    assert checkpoint.shapes == {"state.weight": (3, 2), "state.bias": (3,)}
    assert checkpoint.metadata == {"state": {}}


def test_one_tensor_at_a_time(tmp_path):
    big = torch.arange(4_000_000, dtype=torch.float32)
    path = save(tmp_path, {str(i): big + i for i in range(4)})
    checkpoint = OmegaConfCheckpoint(path)
    tracemalloc.start()
    assert checkpoint.read("2")[5] == 7
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.1 * big.nbytes


def test_files_are_told_apart(published, tmp_path):
    assert holds_omegaconf(published)
    assert not holds_omegaconf(save(tmp_path, {"a": torch.zeros(2)}))
    other = tmp_path / "x.pt"
    for content in (b"", b"PK\x03\x04", b"PK\x03\x04 no zip", pickle.dumps({"omegaconf.base": 1})):
        other.write_bytes(content)
        assert not holds_omegaconf(other)
    assert not holds_omegaconf(tmp_path / "absent.pt")


class Canary:
    """Runs a function when a pickle of it is loaded as pickles are."""

    def __init__(self, function: Callable[..., Any], *arguments: Any):
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize(
    ("function", "arguments", "named"),
    [
        (os.mkdir, ("{place}",), "posix.mkdir"),
        (eval, ("__import__('os').mkdir('{place}')",), "__builtin__.eval"),
        (print, ("x",), "__builtin__.print"),
        (np.zeros, (3,), "numpy.zeros"),
        (torch.hub.load, ("x",), "torch.hub.load"),
        (OrderedDict.fromkeys, ([1],), "__builtin__.getattr"),
    ],
)
def test_any_other_name_is_refused_and_named(tmp_path, function, arguments, named):
    place = tmp_path / "made"
    path = save(tmp_path, {"a": Canary(function, *(str(a).format(place=place) for a in arguments))})
    with pytest.raises(CheckpointError) as caught:
        OmegaConfCheckpoint(path)
    said = str(caught.value)
    assert f"asks for {named}," in said
    assert str(path) in said
    assert "\n" not in said
    assert not place.exists()


def test_a_class_of_omegaconf_that_is_not_on_the_list(tmp_path):
    path = pickled(tmp_path, b"\x80\x02comegaconf.resolvers\noc\n.")
    with pytest.raises(CheckpointError, match=r"asks for omegaconf\.resolvers\.oc"):
        OmegaConfCheckpoint(path)
    assert not any("resolvers" in name for name in ALLOWED)


DICT = b"c__builtin__\ndict\n"
ANY = b"ctyping\nAny\n"
CONFIG_CLASS = b"comegaconf.dictconfig\nDictConfig\n"
REBUILD = b"ctorch._utils\n_rebuild_tensor_v2\n"
HOSTILE = {
    "a type is called": DICT + b")R.",
    "typing.Any is called": ANY + b")R.",
    "a list is called": b"])R.",
    "an object with arguments": CONFIG_CLASS + b"K\x01\x85\x81.",
    "an object of a type": DICT + b")\x81.",
    "attributes of a name": DICT + b"}b.",
    "attributes of a number": b"K\x01}b.",
    "attributes that are no dict": CONFIG_CLASS + b")\x81]b.",
    "a tensor of nothing": REBUILD + b"(NK\x00))tR.",
    "a storage that is none": b"X\x01\x00\x00\x00aQ.",
    "a storage of a type": b"(X\x07\x00\x00\x00storage"
    + DICT
    + b"X\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x01tQ.",
    "a dict with a list": b"ccollections\nOrderedDict\n]\x85R.",
    "keys that are no names": b"}]K\x01s.",
    "items of a number": b"K\x01K\x02K\x03s.",
    "appended to a dict": b"}K\x01a.",
    "an unknown memo": b"h\x07.",
    "an empty stack": b"0.",
    "two results": b"K\x01K\x02.",
    "no end": b"K\x01",
    "an old opcode": b"I1\n.",
    "a persistent name": b"P1\n.",
    "an instance": b"(i__builtin__\ndict\n.",
    "below the mark": b"K\x01(\x85.",
    "no tensors": b"}X\x01\x00\x00\x00aK\x01s.",
    "not a dict": b"]K\x01a.",
}


@pytest.mark.parametrize("what", HOSTILE)
def test_what_torch_save_never_writes(what, tmp_path):
    with pytest.raises(CheckpointError, match="nothing of it was run"):
        OmegaConfCheckpoint(pickled(tmp_path, b"\x80\x02" + HOSTILE[what]))


STORAGE = b"X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000NK\x01"
CLOSED = b"t\x86."  # the mark's tuple, and a pair of what was below and that
BELOW_THE_MARK = {  # pickles that would be read if the mark were not there, and the same without it
    "TUPLE1": (b"K\x01(\x85", b"K\x01\x85"),
    "TUPLE2": (b"K\x01(K\x02\x86", b"K\x01K\x02\x86"),
    "TUPLE3": (b"K\x01K\x02(K\x03\x87", b"K\x01K\x02K\x03\x87"),
    "APPEND": (b"](K\x01a", b"]K\x01a"),
    "APPENDS": (b"]((K\x01e", b"](K\x01e"),
    "SETITEM": (b"}(K\x01K\x02s", b"}K\x01K\x02s"),
    "SETITEMS": (b"}((K\x01K\x02u", b"}(K\x01K\x02u"),
    "NEWOBJ": (CONFIG_CLASS + b"()\x81", CONFIG_CLASS + b")\x81"),
    "REDUCE": (b"ccollections\nOrderedDict\n()R", b"ccollections\nOrderedDict\n)R"),
    "BUILD": (CONFIG_CLASS + b")\x81(}b", CONFIG_CLASS + b")\x81}b"),
    "BINPERSID": (b"(" + STORAGE + b"t(Q", b"(" + STORAGE + b"tQ"),
    "BINPUT": (b"}(q\x00", b"}q\x00"),
    "LONG_BINPUT": (b"}(r\x00\x00\x00\x00", b"}r\x00\x00\x00\x00"),
}
KNOWN_TO_PYTHON = BELOW_THE_MARK.keys() - {"NEWOBJ", "BUILD", "BINPERSID"}  # no class, no storage


@pytest.mark.parametrize("opcode", BELOW_THE_MARK)
def test_no_opcode_reaches_below_the_mark(opcode):
    below, above = (b"\x80\x02" + data for data in BELOW_THE_MARK[opcode])
    with pytest.raises(ValueError, match="the stack is empty"):
        interpret(below + CLOSED)
    interpret(above + b".")
    if opcode in KNOWN_TO_PYTHON:
        with pytest.raises(pickle.UnpicklingError, match="MARK"):
            pickle.loads(below + CLOSED)
        pickle.loads(above + b".")


def test_no_mark_is_left_open():
    with pytest.raises(ValueError, match="inside a mark"):
        interpret(b"\x80\x02}(.")
    with pytest.raises(pickle.UnpicklingError, match="MARK"):
        pickle.loads(b"\x80\x02}(.")
    assert interpret(b"\x80\x02}.") == {}


@pytest.mark.parametrize("protocol", [0, 3, 4, 5])
def test_other_protocols(protocol, tmp_path):
    with pytest.raises(CheckpointError, match=r"refused|corrupt"):
        OmegaConfCheckpoint(pickled(tmp_path, pickle.dumps({"a": 1}, protocol)))


def test_nesting_without_end(tmp_path):
    inside_itself = b"\x80\x02}q\x00X\x01\x00\x00\x00ah\x00s."
    doubling = b"\x80\x02]q\x00" + b"".join(
        b"](h" + bytes([i]) + b"h" + bytes([i]) + b"eq" + bytes([i + 1]) for i in range(40)
    )
    for content in (
        inside_itself,
        doubling + b"X\x01\x00\x00\x00a\x85.",
        b"\x80\x02" + b"]" * 200 + b"a" * 199 + b".",
    ):
        with pytest.raises(CheckpointError, match=r"nested too deeply|damaged"):
            OmegaConfCheckpoint(pickled(tmp_path, content))


def test_storages_that_do_not_hold_what_is_said(tmp_path):
    tensor = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    path = save(tmp_path, {"a": tensor})
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    prefix = next(iter(members)).split("/")[0]
    description, storage = f"{prefix}/data.pkl", f"{prefix}/data/0"

    def rebuilt(**changes: bytes | None) -> Path:
        names = {"pkl": description, "data": storage, "order": f"{prefix}/byteorder"}
        new = members | {names[key]: value for key, value in changes.items() if value is not None}
        for key, value in changes.items():
            if value is None:
                del new[names[key]]
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in new.items():
                archive.writestr(name, content)
        return path

    plain = members[description]
    faults = {
        "is missing": {"data": None},
        "has 20 bytes for 6": {"data": bytes(20)},
        "has 28 bytes for 6": {"data": bytes(28)},
        "reaches beyond": {"pkl": plain.replace(b"QK\x00K\x02K\x03", b"QK\x01K\x02K\x03")},
        "beyond its storage": {"pkl": plain.replace(b"QK\x00K\x02K\x03", b"QK\x00K\x02K\x04")},
        "strides": {"pkl": plain.replace(b"QK\x00K\x02K\x03", b"QJ\xff\xff\xff\xffK\x02K\x03")},
        "little-endian": {"order": b"big"},
    }
    for said, changes in faults.items():
        assert changes.get("pkl") != plain
        with pytest.raises(CheckpointError, match=said):
            OmegaConfCheckpoint(rebuilt(**changes))
    np.testing.assert_array_equal(OmegaConfCheckpoint(rebuilt()).read("a"), tensor.numpy())


@pytest.mark.parametrize(
    ("count", "shape", "strides"),
    [(1, (2,), (0,)), (1, (1000, 1000), (0, 0)), (6, (7,), (0,)), (6, (4, 2), (0, 1)), (6, (3, 3), (2, 0))],
)
def test_a_tensor_that_repeats_its_storage_is_not_larger_than_it(tmp_path, count, shape, strides):
    """A stride of 0 lets a few bytes of a file ask for any amount of memory."""
    storage = torch.arange(count, dtype=torch.float32)
    path = save(tmp_path, {"a": storage.as_strided(shape, strides)})
    with pytest.raises(CheckpointError, match="corrupt: a reaches beyond its storage"):
        OmegaConfCheckpoint(path)


@pytest.mark.parametrize(
    ("count", "shape", "strides"), [(6, (6,), (0,)), (6, (3, 2), (0, 1)), (1, (1, 1), (0, 0))]
)
def test_a_tensor_that_repeats_a_part_of_its_storage_is_read(tmp_path, count, shape, strides):
    tensor = torch.arange(count, dtype=torch.float32).as_strided(shape, strides)
    found = OmegaConfCheckpoint(save(tmp_path, {"a": tensor})).read("a")
    np.testing.assert_array_equal(found, tensor.numpy())


def test_damage_anywhere_is_one_clear_error(published, tmp_path):
    """Cut or changed at any place of the description, it is read or refused, never anything else."""
    with zipfile.ZipFile(published) as archive:
        name = next(name for name in archive.namelist() if name.endswith("data.pkl"))
        data = archive.read(name)
    rng = random.Random(0)
    for _ in range(60):
        with pytest.raises(CheckpointError):
            OmegaConfCheckpoint(pickled(tmp_path, data[: rng.randrange(len(data))]))
    for _ in range(60):
        changed = bytearray(data)
        changed[rng.randrange(len(data))] = rng.randrange(256)
        with pytest.raises(CheckpointError):  # at the latest because the storages are not there
            OmegaConfCheckpoint(pickled(tmp_path, bytes(changed)))


def test_no_zip_and_a_compressed_one(tmp_path):
    path = tmp_path / "x.pt"
    path.write_bytes(pickle.dumps({"a": 1}, 2))
    with pytest.raises(CheckpointError, match="no zip"):
        OmegaConfCheckpoint(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x/data.pkl", bytes(1000))
    with pytest.raises(CheckpointError, match="compressed"):
        OmegaConfCheckpoint(path)


def save(folder: Path, content: dict[str, Any]) -> Path:
    torch.save(content, folder / "x.pt")
    return folder / "x.pt"


def pickled(folder: Path, data: bytes) -> Path:
    """A zip whose description is `data`, without a storage."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("x/data.pkl", data)
    (folder / "x.pt").write_bytes(buffer.getvalue())
    return folder / "x.pt"
