"""Small published checkpoints for the tests of this package, and functions to compare and write them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from converters.published import ModelPart
from tests.converters.twins import nari_twin, transformers_twin
from tests.golden.cases import DEFAULT

pytest.importorskip("torch", reason="torch is not installed: the published pickles need it")

GOLDEN = DEFAULT / "dia"
V_0626_HF, V_V01, DAC = (GOLDEN / name for name in ("v_0626_hf", "v_v01", "v_dac"))
DAC_PTH = DAC / "weights_dac.pth"
V_0626, DAC_HF = nari_twin(GOLDEN / "v_0626", V_0626_HF), transformers_twin(DAC)


def read_all(part: ModelPart) -> dict[str, np.ndarray]:
    return {name: part.read(name) for name in part.names()}


def assert_same(ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> None:
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        np.testing.assert_array_equal(tensor, theirs[name], err_msg=name)


def write_safetensors(path: Path, tensors: dict[str, np.ndarray], **header: object) -> None:
    """Write a file as the safetensors library does; `header` entries replace those of the same name."""
    entries: dict[str, object] = {}
    data = b""
    for name, tensor in tensors.items():
        at = len(data)
        data += np.ascontiguousarray(tensor).tobytes()
        dtype = {"float32": "F32", "float16": "F16", "int32": "I32", "uint16": "BF16"}[str(tensor.dtype)]
        entries[name] = {"dtype": dtype, "shape": list(tensor.shape), "data_offsets": [at, len(data)]}
    write_raw(path, json.dumps(entries | header).encode(), data)


def write_raw(path: Path, header: bytes, data: bytes = b"") -> None:
    path.write_bytes(len(header).to_bytes(8, "little") + header + data)


def left_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def files_of(folder: Path) -> dict[str, str]:
    """File → hash, of files that do not name the source."""
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file.name not in ("conversion.json", "README.md")
    }
