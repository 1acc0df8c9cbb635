"""torch.save's two formats, read without PyTorch."""

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from tts_core.judges.state_dict import read_state_dict


@pytest.mark.parametrize("zipped", [True, False])
def test_both_formats_are_read(tmp_path: Path, zipped: bool) -> None:
    whole = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    saved = {"whole": whole, "view": whole[1:3, ::2].T, "scalar": torch.tensor(7), "again": whole}
    torch.save({"model": saved, "step": 3}, tmp_path / "a.pt", _use_new_zipfile_serialization=zipped)
    found = read_state_dict(tmp_path / "a.pt", "model")
    assert list(found) == list(saved)
    for name, tensor in saved.items():
        np.testing.assert_array_equal(found[name], tensor.numpy())
        assert found[name].dtype == tensor.numpy().dtype


@pytest.mark.parametrize("zipped", [True, False])
def test_other_classes_are_refused(tmp_path: Path, zipped: bool) -> None:
    torch.save({"model": {"a": Path("x")}}, tmp_path / "a.pt", _use_new_zipfile_serialization=zipped)
    with pytest.raises(pickle.UnpicklingError, match="pathlib"):
        read_state_dict(tmp_path / "a.pt", "model")
