"""Files that are read back while they are written, and tensors made ahead."""

import hashlib
import threading

import numpy as np
import pytest

from converters.convert import _ahead
from converters.files.read_back import Follower, check_written
from converters.files.writer import Entry, SafetensorsWriter, Written
from tts_core.errors import CheckpointError

ENTRIES = [
    Entry("a", "BF16", (5,)),
    Entry("b", "F32", (300_000,)),
    Entry("c", "F32", ()),
    Entry("d", "U8", (0,)),
]
TENSORS = {
    "a": np.arange(5, dtype=np.uint16),
    "b": np.arange(300_000, dtype=np.float32),
    "c": np.array(7, np.float32),
    "d": np.zeros(0, np.uint8),
}


@pytest.mark.parametrize("order", ["abcd", "dcba", "badc"])
def test_a_file_is_read_once_in_its_own_order(tmp_path, order):
    """Whatever the order of writing: every tensor's checksum, and the hash of the whole file."""
    path = tmp_path / "x.safetensors"
    writer = SafetensorsWriter(path, ENTRIES)
    with Follower(path) as follower:
        for name in order:
            writer.write(name, TENSORS[name])
            follower.written(name)
        writer.close()
        follower.complete()
        found = follower.found()
    assert found.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    expected = [Written.of(entry, TENSORS[entry.name]) for entry in ENTRIES]
    assert sorted(found.tensors, key=str) == sorted(expected, key=str)
    check_written(expected, [found])
    with pytest.raises(CheckpointError, match=r"b: not on the disk as written \(1 tensors\)"):
        check_written([*expected[:1], *expected[2:]], [found])


def test_leaving_early_ends_the_thread(tmp_path):
    """It waits for a tensor that never comes."""
    path, before = tmp_path / "x.safetensors", threading.active_count()
    writer = SafetensorsWriter(path, ENTRIES)
    with pytest.raises(ZeroDivisionError), Follower(path):
        raise ZeroDivisionError
    writer.abort()
    assert threading.active_count() == before


def test_a_tensor_is_made_while_the_one_before_is_used():
    made = threading.Semaphore(0)

    def items():
        for number in range(3):
            made.release()
            yield number
        raise CheckpointError("damaged")

    ahead = _ahead(items())
    assert next(ahead) == 0
    assert made.acquire(timeout=5)
    assert made.acquire(timeout=5), "the second was not begun"
    assert next(ahead) == 1
    assert next(ahead) == 2
    with pytest.raises(CheckpointError, match="damaged"):
        next(ahead)


def test_tensors_that_nobody_takes_are_not_made():
    made = []
    ahead = _ahead(made.append(number) or number for number in range(9))
    next(ahead)
    ahead.close()
    assert len(made) <= 2
