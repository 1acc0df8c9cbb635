"""The child process in which a doubtful pickle is tried: its answer, and its limits of time and memory."""

import os

import pytest

from converters.files import pickle_child, pickles
from converters.files.pickle_child import try_in_child
from converters.files.pickles import TorchCheckpoint
from tests.converters.files.opcodes import OLD_HEAD, START, entries, tensor, text, used_again, write_zip
from tests.converters.files.test_pickles import save
from tts_core.errors import CheckpointError, ResourceError

pytestmark = pytest.mark.rest

torch = pytest.importorskip("torch", reason="torch reads pickles")


def test_a_file_that_comes_through(tmp_path):
    torch.save({"model": {"a": torch.ones(2)}, "x": torch.float32}, tmp_path / "x.pt")
    try_in_child(tmp_path / "x.pt")


@pytest.mark.parametrize(
    ("answer", "kind", "said"),
    [
        (b'[4, "x.pt: damaged"]', CheckpointError, "x.pt: damaged"),
        (b'[5, "x.pt: cannot be read"]', ResourceError, "x.pt: cannot be read"),
        (b'[6, "internal"]', CheckpointError, "internal"),
    ],
)
def test_the_error_of_a_child(answer, kind, said):
    fault = pickle_child._fault(answer)
    assert type(fault) is kind
    assert str(fault) == said


@pytest.mark.parametrize("answer", [b"", b"Fatal Python error", b"[4", b"{}", b"[4]", b"4", b"[[], 4]"])
def test_an_answer_that_is_none(answer):
    assert pickle_child._fault(answer) is None


def test_a_hash_that_never_ends(tmp_path, monkeypatch):
    """A key of tuples of tuples: 600 bytes, 2 ** 60 steps. The name is not UTF-8."""
    monkeypatch.setattr(pickle_child, "SECONDS", 1.0)
    path = tmp_path / os.fsdecode(b"x\xff.pt")
    pickled = entries(
        text("state_dict"), entries(text("a"), tensor()), text("b"), used_again(60), text("c"), b"}h\x3cNs"
    )
    write_zip(path, START + pickled + b".")
    with pytest.raises(CheckpointError, match=r"refused: reading it takes more than 1 s of processor time"):
        TorchCheckpoint(path)


@pytest.mark.slow
def test_memory_without_end(tmp_path):
    """torch reads a bytearray of any size: four gigabytes of zeros here."""
    pickled = entries(
        text("state_dict"),
        entries(text("a"), tensor()),
        text("b"),
        b"c__builtin__\nbytearray\n\x8a\x05" + (4 << 30).to_bytes(5, "little") + b"\x85R",
    )
    write_zip(tmp_path / "x.pt", START + pickled + b".")
    with pytest.raises(CheckpointError, match=r"takes more than .* 1024 MB of memory"):
        TorchCheckpoint(tmp_path / "x.pt")


def test_the_parent_watches_too(tmp_path, monkeypatch):
    """On systems without a memory limit, and for a child that never answers."""
    torch.save({"model": {"a": torch.ones(2)}, "x": torch.float32}, tmp_path / "x.pt")
    monkeypatch.setattr(pickle_child, "MEMORY", -(1 << 30))
    with pytest.raises(CheckpointError, match="refused: reading it takes more than -1024 MB of memory"):
        try_in_child(tmp_path / "x.pt")
    monkeypatch.setattr(pickle_child, "MEMORY", 1 << 30)
    monkeypatch.setattr(pickle_child, "_STARTED", -2 * pickle_child.SECONDS)
    with pytest.raises(CheckpointError, match="refused: reading it takes more than 0 s"):
        try_in_child(tmp_path / "x.pt")


def test_what_is_doubted_is_tried_in_a_child_first(tmp_path, monkeypatch):
    tried = []
    monkeypatch.setattr(pickles, "try_in_child", tried.append)
    betas = (0.9, 0.95)
    path = save(tmp_path, {"model": {"a": torch.ones(2)}, "optimizer": [betas, betas]})
    assert TorchCheckpoint(path).metadata["optimizer"] == [betas, betas]
    assert tried == [path]


@pytest.mark.parametrize("doubtful", [0, 1, 2], ids=["of the machine", "of tensors", "of the storages"])
def test_each_pickle_of_an_old_file_may_be_doubted(tmp_path, monkeypatch, doubtful):
    tried = []
    monkeypatch.setattr(pickles, "try_in_child", tried.append)
    monkeypatch.setattr(pickles, "_read", lambda path, bounds: pickles.PickleContents({}, {}, ()))
    parts = [entries(), entries(text("a"), tensor()), b"]"]
    parts[doubtful] = entries(text("x"), used_again(2))
    path = tmp_path / "x.pth"
    path.write_bytes(OLD_HEAD + b"".join(START + part + b"." for part in parts) + bytes(16))
    TorchCheckpoint(path)
    assert tried == [path]
