"""Files that are read back while they are written."""

import hashlib
import threading

import numpy as np
import pytest

from converters.files.read_back import ReadBack
from converters.files.writer import SafetensorsWriter, TensorEntry
from tts_core.errors import CheckpointError

ENTRIES = [
    TensorEntry("a", "BF16", (5,)),
    TensorEntry("b", "F32", (300_000,)),
    TensorEntry("c", "F32", ()),
    TensorEntry("d", "U8", (0,)),
]
TENSORS = {
    "a": np.arange(5, dtype=np.uint16),
    "b": np.arange(300_000, dtype=np.float32),
    "c": np.array(7, np.float32),
    "d": np.zeros(0, np.uint8),
}


@pytest.mark.parametrize("order", ["abcd", "dcba", "badc"])
def test_a_file_has_the_hash_of_its_bytes(tmp_path, order):
    """Whatever the order of writing."""
    path, entries = tmp_path / "x.safetensors", {entry.name: entry for entry in ENTRIES}
    writer = SafetensorsWriter(path, ENTRIES)
    with ReadBack(path) as back:
        for name in order:
            writer.write(name, TENSORS[name])
            back.compare(entries[name], [TENSORS[name]])
        writer.close()
        assert back.sha256() == hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("place", [0, 262_143, 262_144, 299_999])
def test_one_changed_number_is_found(tmp_path, place):
    """At the ends, and where the pieces meet that are compared."""
    path, before = tmp_path / "x.safetensors", threading.active_count()
    writer, other = SafetensorsWriter(path, ENTRIES), TENSORS["b"].copy()
    other[place] += 0.25
    writer.write("b", other)
    with (
        ReadBack(path) as back,
        pytest.raises(CheckpointError, match=r"^DST: b: not on the disk as written;"),
    ):
        back.compare(ENTRIES[1], [TENSORS["b"]])
    writer.abort()
    assert threading.active_count() == before


@pytest.mark.parametrize(
    "entry", [TensorEntry("b", "I32", (300_000,)), TensorEntry("b", "F32", (1, 300_000))]
)
def test_the_header_is_compared_too(tmp_path, entry):
    path = tmp_path / "x.safetensors"
    writer = SafetensorsWriter(path, ENTRIES)
    writer.write("b", TENSORS["b"])
    with ReadBack(path) as back, pytest.raises(CheckpointError, match="not on the disk"):
        back.compare(entry, [TENSORS["b"]])
    writer.abort()


def test_a_file_that_became_shorter(tmp_path):
    path = tmp_path / "x.safetensors"
    writer = SafetensorsWriter(path, ENTRIES)
    writer.write("b", TENSORS["b"])
    with ReadBack(path) as back:
        writer._file.truncate(1000)
        with pytest.raises(CheckpointError, match="not on the disk"):
            back.compare(ENTRIES[1], [TENSORS["b"]])
    writer.abort()


def test_leaving_early_ends_the_thread(tmp_path):
    """It waits for a tensor that never comes."""
    path, before = tmp_path / "x.safetensors", threading.active_count()
    writer = SafetensorsWriter(path, ENTRIES)
    with pytest.raises(ZeroDivisionError), ReadBack(path):
        raise ZeroDivisionError
    writer.abort()
    assert threading.active_count() == before
