"""Torch pickles: what torch saved comes back, and every damaged or hostile file is one clear error."""

import os
import pickle
import random
import sys
import tracemalloc
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from converters.files import pickles, plain
from converters.files.pickles import TorchCheckpoint
from tests.converters.files.opcodes import ENCODE, START, entries, storage, tensor, text, write_zip
from tests.converters.folders import DAC_PTH, V_0626
from tests.tiny.mbd import CONFIG, published_cfg, published_content, write_published
from tests.tiny.networks import tiny
from tests.tts_core.growth import lines_run
from tts_core.errors import CheckpointError, NotFoundError

pytestmark = pytest.mark.rest

torch = pytest.importorskip("torch", reason="torch reads pickles")

REAL = Path(__file__).parents[2] / "data/pickles/omegaconf.pt"


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("published") / "mbd_comp_8.pt"
    return write_published(path, published_content(CONFIG, tiny("mbd").tensors))


def save(folder: Path, content: Any) -> Path:
    torch.save(content, folder / "x.pt")
    return folder / "x.pt"


def refusal(path: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        TorchCheckpoint(path)
    said = str(caught.value)
    assert said.startswith(f"{path}: ")
    assert "\n" not in said
    assert "()" not in said
    return said


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "int64", "uint8", "bool"])
def test_every_dtype_view_and_size(tmp_path, dtype):
    whole = (torch.randn(6, 5, 4) * 3).to(getattr(torch, dtype))
    views = {"a": whole, "part": whole[2:4], "turned": whole.permute(2, 0, 1), "every": whole[::2, :, 1::2]}
    views |= {"scalar": whole[0, 0, 0], "empty": whole[:0], "last": whole[5, 4, 3:]}
    checkpoint = TorchCheckpoint(save(tmp_path, views))
    for name, view in views.items():
        expected = (view.float() if view.is_floating_point() else view).numpy()
        found = checkpoint.read(name)
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        np.testing.assert_array_equal(found, expected)


def test_pickle_with_metadata():
    checkpoint = TorchCheckpoint(DAC_PTH)
    assert checkpoint.metadata["kwargs"]["latent_dim"] == 64
    assert len(checkpoint.shapes) == 301


def test_legacy_pickle_is_read_without_mapping(tmp_path):
    tensors = torch.load(V_0626 / "dia-v1.pth", weights_only=True)
    torch.save(tensors, tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    checkpoint = TorchCheckpoint(tmp_path / "old.pth")
    for name, value in tensors.items():
        np.testing.assert_array_equal(checkpoint.read(name), value.numpy())


def test_one_tensor_at_a_time(tmp_path):
    big = torch.arange(4_000_000, dtype=torch.float32)
    path = save(tmp_path, {str(i): big + i for i in range(4)})
    checkpoint = TorchCheckpoint(path)
    tracemalloc.start()
    assert checkpoint.read("2")[5] == 7
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.1 * big.nbytes


def test_the_parts_of_training_are_plain(tmp_path):
    """Tensors and other values beside the model are not rebuilt; integers beyond 64 bits are not numbers."""
    content = {
        "model": {"a": torch.ones(2)},
        "optimizer": {"state": {0: {"exp_avg": torch.ones(2)}}, "param_groups": [{"betas": (0.9, 0.95)}]},
        "meta": {"tokenizer": {b"x": 1, "y": [None, True]}},
    }
    checkpoint = TorchCheckpoint(save(tmp_path, content))
    assert checkpoint.entries == ("optimizer", "meta")
    assert checkpoint.metadata["meta"] == content["meta"]
    assert checkpoint.metadata["optimizer"]["param_groups"] == [{"betas": (0.9, 0.95)}]
    assert repr(checkpoint.metadata["optimizer"]["state"][0]["exp_avg"]) == "<Tensor>"


# settings of OmegaConf


def test_settings_are_plain_and_tensors_as_saved(published):
    checkpoint = TorchCheckpoint(published)
    assert checkpoint.metadata["n_bands"] == 2
    for b, band in enumerate(CONFIG.bands):
        assert checkpoint.metadata[b]["cfg"] == published_cfg(band, CONFIG.sample_rate)
    parts = {"unet": "model_state", "processor": "processor_state"}
    saved = {}
    for name, value in tiny("mbd").tensors.items():
        _, b, part, rest = name.split(".", 3)
        saved[f"{b}.{parts[part]}.{rest}"] = value
    assert checkpoint.shapes == {name: value.shape for name, value in saved.items()}
    assert set(checkpoint.dtypes.values()) == {"F32"}
    for name, value in saved.items():
        np.testing.assert_array_equal(checkpoint.read(name), value)
    assert checkpoint.files == (published,)


def test_a_file_that_omegaconf_wrote():
    """omegaconf 2.4.0 and torch 2.11.0 wrote it: tests/data/pickles/README.md."""
    checkpoint = TorchCheckpoint(REAL)
    assert checkpoint.metadata == {
        "sample_rate": 24000,
        "n_bands": 1,
        0: {
            "cfg": {
                "channels": 1,
                "sample_rate": 24000,
                "diffusion_unet": {"hidden": 48, "depth": 4, "growth": 4.0, "x": [1, 2, {"a": None}]},
                "processor": {"use": True, "power_std": [0.1, 0.2], "name": "${schedule.repartition}"},
                "schedule": {"repartition": "power", "num_steps": 1000},
            },
            "model_state": {},
            "processor_state": {},
        },
    }
    assert checkpoint.shapes == {"0.model_state.a": (2, 3), "0.model_state.b": (3,)}
    np.testing.assert_array_equal(checkpoint.read("0.model_state.a"), np.arange(6.0).reshape(2, 3))


# files that ask for code


class Canary:
    """Runs a function when a pickle of it is loaded as pickles are."""

    def __init__(self, function: Callable[..., Any], *arguments: Any):
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize("form", ["zip", "legacy", "bare"])
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
def test_any_other_name_is_refused_and_named(tmp_path, form, function, arguments, named):
    place, path = tmp_path / "made", tmp_path / "dia.pth"
    content = {
        "a": torch.ones(2),
        "b": Canary(function, *(str(each).format(place=place) for each in arguments)),
    }
    if form == "bare":
        path.write_bytes(pickle.dumps(content, 2))
    else:
        torch.save(content, path, _use_new_zipfile_serialization=form == "zip")
    said = refusal(path)
    assert "refused: " in said
    assert form == "bare" or f"asks for {named}, which is code" in said
    assert "nothing of it was run" in said
    assert not place.exists()


# files that would take time or memory without end


def doubled(levels: int) -> bytes:
    """A list of lists, each of twice the list before."""
    made = b"](]q\x00"
    for level in range(levels):
        made += b"](h" + bytes([level]) + b"h" + bytes([level]) + b"eq" + bytes([level + 1])
    return made + b"e"


IDEOGRAPHS = "".join(map(chr, range(0x4E00, 0x4E00 + 20_000)))  # 50 s as punycode, four times that for twice
HUNGRY = {
    "punycode": (
        entries(text("a"), tensor(), text("b"), ENCODE + text(IDEOGRAPHS) + text("punycode") + b"\x86R"),
        "byte strings",
    ),
    "axes": (entries(text("a"), tensor([1] * 100_000, [1] * 100_000)), "100000 axes; at most 32"),
    "strides of 0": (
        entries(text("a"), tensor([20_000, 20_000], [0, 0])),
        "its tensors take 1600000000 bytes, the file",
    ),
    "one storage many times": (
        entries(*(text(f"a{i}") + tensor([4000], [1], storage("1", 4000)) for i in range(5000))),
        "its tensors take 80000000 bytes",
    ),
    "a list of lists": (
        entries(text("state_dict"), entries(text("a"), tensor()), text("b"), doubled(40)),
        "too many values",
    ),
    "a list in itself": (
        entries(text("state_dict"), entries(text("a"), tensor()), text("b"), b"]q\x00h\x00a"),
        "nested too deeply",
    ),
    "two hundred lists": (
        entries(text("state_dict"), entries(text("a"), tensor()), text("b"), b"]" * 200 + b"a" * 199),
        "nested too deeply",
    ),
    "a storage beyond the file": (
        entries(text("a"), tensor([2**40], [1], storage(count=2**40))),
        "storage 0 has 16 bytes, not 4398046511104",
    ),
    "no such storage": (entries(text("a"), tensor(held=storage("2"))), "storage 2 is missing"),
    "a long name": (
        entries(text("state_dict"), entries(text("a"), tensor()), text("b"), entries(text("k" * 201), b"N")),
        "201 characters",
    ),
}


@pytest.mark.parametrize("case", HUNGRY)
def test_a_small_file_takes_little_work(tmp_path, case, monkeypatch):
    """Lines of Python are counted: the longest refusal takes six million."""
    monkeypatch.setattr(plain, "MOST_VALUES", 50_000)
    pickled, said = HUNGRY[case]
    path = write_zip(tmp_path / "x.pt", START + pickled + b".", _1=bytes(16_000))
    refusals: list[str] = []
    assert 0 < lines_run(lambda: refusals.append(refusal(path))) < 10**7
    assert said in refusals[0]


def test_a_tensor_may_be_shared_by_a_few_names(tmp_path):
    tied = torch.ones(1000)
    assert len(TorchCheckpoint(save(tmp_path, {"a": tied, "b": tied, "c": tied})).shapes) == 3


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize(
    ("count", "shape", "strides"),
    [
        (1, (2,), (0,)),
        (1, (1000, 1000), (0, 0)),
        (6, (7,), (0,)),
        (6, (4, 2), (0, 1)),
        (6, (3, 3), (2, 0)),
        (6, (4, 3), (1, 1)),
        (6, (6,), (0,)),
        (6, (3, 2), (0, 1)),
        (1, (1, 1), (0, 0)),
    ],
)
def test_an_expanded_tensor_is_read(tmp_path, count, shape, strides, zipped):
    view = torch.arange(1, count + 1, dtype=torch.float32).as_strided(shape, strides)
    torch.save({"a": view}, tmp_path / "x.pt", _use_new_zipfile_serialization=zipped)
    checkpoint = TorchCheckpoint(tmp_path / "x.pt")
    np.testing.assert_array_equal(checkpoint.read("a"), view.numpy())
    pieces = np.concatenate([np.ravel(piece) for piece in checkpoint.blocks("a", 5)])
    np.testing.assert_array_equal(pieces, view.numpy().ravel())


def test_what_expanded_tensors_take_is_bounded(tmp_path, monkeypatch):
    """A stride of 0 lets a few bytes of a file ask for any amount of memory; it is named, and not corrupt."""
    path = save(tmp_path, {"b": torch.ones(3), "a": torch.ones(1).expand(10**9)})
    said = refusal(path)
    assert f"refused: its tensors take 4000000012 bytes, the file {path.stat().st_size}: a and others" in said
    assert "are expanded or share storages; save clones of them" in said
    assert "corrupt" not in said
    path = save(tmp_path, {"a": torch.ones(1).expand(10**6)})
    monkeypatch.setattr(pickles, "SPARE", 4 * 10**6)
    TorchCheckpoint(path)
    monkeypatch.setattr(pickles, "SPARE", 4 * 10**6 - 1)
    assert "its tensors take 4000000 bytes" in refusal(path)


# damage


def test_a_truncated_pickle(tmp_path):
    """At every member of a zip, and in each part of an old file."""
    data = DAC_PTH.read_bytes()
    with zipfile.ZipFile(DAC_PTH) as archive:
        cuts = {member.header_offset for member in archive.infolist()[::20]}
        cuts |= {member.header_offset + 30 for member in archive.infolist()[:2]}
        cuts |= {archive.start_dir, archive.start_dir + 1, len(data) - 1, 0, 3, 4}
    path = tmp_path / "x.pth"
    torch.save({"a": torch.ones(100)}, path, _use_new_zipfile_serialization=False)
    old = path.read_bytes()
    for whole, places in ((data, cuts), (old, {0, 10, 30, 100, 250, len(old) - 300, len(old) - 1})):
        for place in sorted(places):
            path.write_bytes(whole[:place])
            refusal(path)


def test_an_old_file_that_promises_more_than_it_has_is_not_read(tmp_path):
    torch.save({"a": torch.ones(10_000)}, tmp_path / "x.pth", _use_new_zipfile_serialization=False)
    os.truncate(tmp_path / "x.pth", 30_000)
    assert "truncated: its storages take more than 30000 bytes" in refusal(tmp_path / "x.pth")


def fuzz(folder: Path, seed: int, count: int) -> int:
    """Open `count` damaged zips; the number of those that were refused."""
    rng, path, refused = random.Random(seed), folder / "x.pt", 0
    torch.save(
        {"model": {"a": torch.ones(3), "b": torch.zeros(2, 2).half()}, "meta": {"x": [b"y", 1.5]}}, path
    )
    whole = path.read_bytes()
    for _ in range(count):
        changed = bytearray(whole)
        for _ in range(rng.choice((1, 1, 3, 30))):
            at = rng.randrange(len(changed))
            if rng.random() < 0.8:
                changed[at] = rng.randrange(256)
            else:
                del changed[at : at + rng.randrange(1, 100)]
        path.write_bytes(changed)
        try:
            checkpoint = TorchCheckpoint(path)
        except (CheckpointError, NotFoundError):
            refused += 1
            continue
        for name in checkpoint.shapes:
            checkpoint.read(name)
    return refused


def test_damaged_zips_are_read_or_refused(tmp_path):
    assert fuzz(tmp_path, 0, 150) > 20


@pytest.mark.slow
def test_many_damaged_zips(tmp_path):
    for seed in range(1, 41):
        fuzz(tmp_path, seed, 1000)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ([1, 2], "contains a list"),
        ({}, "expected a dict of tensors"),
        ({"a": 3}, "'a' is a int"),
        ({"state_dict": {"a": "text"}}, "'a' is a str"),
        ({3: torch.ones(1)}, "3 is a Tensor, expected named tensors"),
    ],
)
def test_pickles_of_other_things(tmp_path, content, said):
    assert said in refusal(save(tmp_path, content))


def test_sparse_tensor(tmp_path):
    assert "a is not a plain dense tensor" in refusal(save(tmp_path, {"a": torch.eye(3).to_sparse()}))


def test_a_pickle_saved_without_checksums(tmp_path):
    torch.serialization.set_crc32_options(False)
    try:
        path = save(tmp_path, {"a": torch.ones(2)})
    finally:
        torch.serialization.set_crc32_options(True)
    assert TorchCheckpoint(path).read("a").tolist() == [1, 1]


def changed_zip(source: Path, target: Path, **changes: bytes) -> Path:
    """The zip with other contents of some members."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            new.writestr(name, changes.get(name.rpartition("/")[2], old.read(name)))
    return target


def test_storages_that_are_not_as_described(tmp_path):
    path = save(tmp_path, {"a": torch.arange(6, dtype=torch.float32).reshape(2, 3)})
    for said, changes in {
        "storage 0 has 20 bytes, not 24": {"0": bytes(20)},
        "storage 0 has 28 bytes, not 24": {"0": bytes(28)},
        "little-endian": {"byteorder": b"big"},
    }.items():
        assert said in refusal(changed_zip(path, tmp_path / "y.pt", **changes))
    with zipfile.ZipFile(path) as archive:
        description = archive.read("x/data.pkl")
    for new in (b"QK\x00K\x02K\x04", b"QK\x01K\x02K\x03"):
        pickled = description.replace(b"QK\x00K\x02K\x03", new)
        assert pickled != description
        said = refusal(changed_zip(path, tmp_path / "y.pt", **{"data.pkl": pickled}))
        assert "corrupt: a tensor reaches beyond storage 0" in said


@pytest.mark.parametrize("change", ["truncated", "touched", "replaced"])
def test_a_file_that_changes_after_planning(tmp_path, change):
    path = save(tmp_path, {"a": torch.ones(1000)})
    checkpoint = TorchCheckpoint(path)
    if change == "truncated":
        os.truncate(path, 100)
    elif change == "touched":
        os.utime(path, ns=(0, 0))
    else:
        path.rename(tmp_path / "old")
        save(tmp_path, {"a": torch.zeros(1000)})
    with pytest.raises(CheckpointError, match="changed while it was read"):
        checkpoint.read("a")


def test_torch_is_not_imported(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)  # an import would raise
    assert len(TorchCheckpoint(DAC_PTH).shapes) == 301
