"""torch.save's two formats, read without PyTorch."""

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from tts_core.errors import CheckpointError
from tts_core.judges.state_dict import read_state_dict

# an old file begins with three pickles: these two, and the sizes of C's types
LEGACY_MAGIC, LEGACY_VERSION = 0x1950A86A20F9469CFC6C, 1001


@pytest.mark.parametrize("zipped", [True, False])
def test_both_formats_are_read(tmp_path: Path, zipped: bool) -> None:
    whole = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    saved = {"whole": whole, "view": whole[1:3, ::2].T, "scalar": torch.tensor(7), "again": whole}
    torch.save({"model": saved, "step": 3}, tmp_path / "a.pt", _use_new_zipfile_serialization=zipped)
    found = read_state_dict((tmp_path / "a.pt").read_bytes(), "model")
    assert list(found) == list(saved)
    for name, tensor in saved.items():
        np.testing.assert_array_equal(found[name], tensor.numpy())
        assert found[name].dtype == tensor.numpy().dtype


@pytest.mark.parametrize("zipped", [True, False])
def test_other_classes_are_refused(tmp_path: Path, zipped: bool) -> None:
    torch.save({"model": {"a": Path("x")}}, tmp_path / "a.pt", _use_new_zipfile_serialization=zipped)
    with pytest.raises(CheckpointError, match="pathlib"):
        read_state_dict((tmp_path / "a.pt").read_bytes(), "model")


class Touch:
    """Pickled, it creates a file when it is read."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.mark.parametrize("place", range(5))
def test_no_pickle_of_an_old_file_runs_code(tmp_path: Path, place: int) -> None:
    pickles: list[object] = [LEGACY_MAGIC, LEGACY_VERSION, {"little_endian": True}, {"model": {}}, []]
    read_state_dict(b"".join(pickle.dumps(one, 2) for one in pickles), "model")
    pickles[place] = Touch(tmp_path / "ran")
    content = b"".join(pickle.dumps(one, 2) for one in pickles)
    with pytest.raises(CheckpointError, match="nothing of it was run"):
        read_state_dict(content, "model")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("begins", [[LEGACY_MAGIC, LEGACY_VERSION + 1], [0, LEGACY_VERSION]])
def test_another_file_is_not_taken_for_an_old_one(begins: list[int]) -> None:
    content = b"".join(pickle.dumps(one, 2) for one in [*begins, {}, {"model": {}}, []])
    with pytest.raises(CheckpointError, match=r"not one that torch\.save wrote"):
        read_state_dict(content, "model")


def test_a_storage_in_the_head_is_refused(tmp_path: Path) -> None:
    content = b"".join(pickle.dumps(one, 2) for one in [LEGACY_MAGIC, LEGACY_VERSION]) + b"\x80\x02K\x01Q."
    with pytest.raises(CheckpointError, match="something that is no storage"):
        read_state_dict(content, "model")
