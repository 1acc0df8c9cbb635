"""Checkpoint files as one mapping of names to shapes, with tensors read one at a time.

Safetensors headers are checked completely before anything is read (tts_core.files.header). Tensors are then
read, not mapped, and a file that is not the one whose header was checked is an error.
Pickles go through PyTorch's restricted reader (weights_only): one that asks for code is refused, and no code
is run.
"""

from __future__ import annotations

import math
import os
import re
import warnings
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from converters.files.dtypes import stored_type, widen
from tts_core.errors import CheckpointError, NotFoundError
from tts_core.files.header import Stored, read_header
from tts_core.files.json_object import read_json
from tts_core.files.regular import check_unchanged, identity, opened, read_into

PICKLES = (".pth", ".pt", ".bin", ".th")
LONGEST_NAME = 255  # bytes of a file's name, on all file systems in use
_INSIDE = ("state_dict", "model", "model_state")  # entries of a pickled dict that may hold its tensors


class SafetensorsCheckpoint:
    """One or several safetensors files; `metadata` is that of their headers."""

    def __init__(self, files: Sequence[Path]):
        self.files = tuple(files)
        self.metadata: dict[str, Any] = {}
        self.entries: tuple[str, ...] = ()  # as of TorchCheckpoint
        self._stored: dict[str, Stored] = {}
        self._identities = {file: identity(file) for file in self.files}
        for file in self.files:
            stored, metadata = read_header(file)
            twice = sorted(stored.keys() & self._stored.keys())
            if twice:
                first = self._stored[twice[0]].file.name
                raise CheckpointError(f"{file}: {_some(twice)} is also in {first}")
            self._stored |= stored
            self.metadata |= metadata
        self.shapes = {name: tensor.shape for name, tensor in self._stored.items()}
        self.dtypes = {name: tensor.dtype for name, tensor in self._stored.items()}

    def read(self, name: str) -> np.ndarray:
        """One tensor: floats as float32, other types as stored."""
        tensor = self._stored[name]
        flat = np.empty(math.prod(tensor.shape), stored_type(tensor.dtype))
        with opened(tensor.file, self._identities[tensor.file]) as file:
            file.seek(tensor.begin)
            read_into(file, flat.view(np.uint8).data, tensor.file)
        return widen(flat, tensor.dtype).reshape(tensor.shape)

    def check_unchanged(self) -> None:
        """Raise CheckpointError if a file is not the one that was opened."""
        for file, expected in self._identities.items():
            check_unchanged(file, expected)


class TorchCheckpoint:
    """A torch pickle: a flat dict of tensors, or a dict with one entry that is such a dict.

    `entries` names what else stands in the dict, `metadata` holds it; of an entry "metadata" also what
    stands in that.
    """

    def __init__(self, file: Path):
        self.files = (file,)
        content: Any = _load_pickle(file)
        self.metadata: dict[str, Any] = {}
        self.entries: tuple[str, ...] = ()
        if isinstance(content, Mapping) and (inside := _holder(content)) is not None:
            self.metadata = {str(name): value for name, value in content.items() if name != inside}
            self.entries = tuple(self.metadata)
            nested = self.metadata.get("metadata")
            self.metadata |= nested if isinstance(nested, Mapping) else {}
            content = content[inside]
        self._tensors = _only_tensors(file, content)
        self.shapes = {name: tuple(tensor.shape) for name, tensor in self._tensors.items()}
        self.dtypes = {
            name: _TORCH_TYPES.get(str(tensor.dtype), "") for name, tensor in self._tensors.items()
        }

    def read(self, name: str) -> np.ndarray:
        """One tensor: floats as float32, other types as stored."""
        tensor = self._tensors[name].detach()
        return (tensor.float() if tensor.is_floating_point() else tensor).numpy()


class Checkpoint(Protocol):
    """What every reader offers: tensors by name, and what stands beside them."""

    files: tuple[Path, ...]
    metadata: dict[Any, Any]
    entries: tuple[str, ...]
    shapes: dict[str, tuple[int, ...]]
    dtypes: dict[str, str]  # safetensors names

    def read(self, name: str) -> np.ndarray:
        """One tensor: floats as float32, other types as stored."""
        ...


def _names_weights(name: str) -> bool:
    """Whether a name can be that of a safetensors file in the same folder."""
    plain = name.isprintable() and name == os.path.basename(name)
    return plain and name.endswith(".safetensors") and len(name.encode()) <= LONGEST_NAME


def _some(names: Sequence[str]) -> str:
    """The first of many names."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def read_index(path: Path) -> list[Path]:
    """The shards that a *.safetensors.index.json names, each there and holding what the index says."""
    index = read_json(path)
    places = index.get("weight_map")
    if (
        not isinstance(places, dict)
        or not places
        or not all(isinstance(shard, str) for shard in places.values())
    ):
        raise CheckpointError(f"{path}: no weight_map of tensor names to file names in it")
    names = sorted(set(places.values()))
    strange = [name for name in names if not _names_weights(name)]
    if strange:
        raise CheckpointError(f"{path}: {_some(strange)} is not the name of a safetensors file beside it")
    absent = [name for name in names if not (path.parent / name).exists()]
    if absent:
        raise CheckpointError(f"{path}: {_some(absent)} is not there, of {len(names)} shards; fetch it")
    files = [path.parent / name for name in names]
    listed: dict[str, set[str]] = {name: set() for name in names}
    for tensor, shard in places.items():
        listed[shard].add(tensor)
    for file in files:
        held, said = set(read_header(file)[0]), listed[file.name]
        if held != said:
            example = sorted(held ^ said)[0]
            raise CheckpointError(
                f"{path}: differs from {file.name} in {len(held ^ said)} tensors, {example} among them"
            )
    return files


_TORCH_TYPES = {
    **{"torch.float64": "F64", "torch.float32": "F32", "torch.float16": "F16", "torch.bfloat16": "BF16"},
    **{
        "torch.int64": "I64",
        "torch.int32": "I32",
        "torch.int16": "I16",
        "torch.int8": "I8",
        "torch.uint8": "U8",
    },
    **{"torch.bool": "BOOL", "torch.float8_e4m3fn": "F8_E4M3", "torch.float8_e5m2": "F8_E5M2"},
}


def _load_pickle(path: Path) -> Any:
    try:
        import torch
    except ImportError:
        raise NotFoundError(
            f"{path}: reading a pickle needs PyTorch, which is not installed; pip install 'mlx-port[torch]'"
        ) from None
    with open(path, "rb") as file:
        zipped = file.read(4) == b"PK\x03\x04"
    if zipped:
        check_zip(path)
    try:
        with warnings.catch_warnings(action="ignore"):
            # a file of torch < 1.6 is no zip and cannot be mapped: it takes its size in memory
            return torch.load(path, map_location="cpu", weights_only=True, mmap=zipped)
    except MemoryError:
        raise
    except Exception as fault:  # torch raises whatever a damaged pickle runs into
        raise CheckpointError(f"{path}: {_pickle_fault(fault)}") from fault


def _holder(content: Mapping[Any, Any]) -> str | None:
    """The entry that holds the tensors; None where the dict itself does."""
    return next((name for name in _INSIDE if isinstance(content.get(name), Mapping)), None)


def _pickle_fault(fault: Exception) -> str:
    asked = re.search(r"GLOBAL (\w[\w.]*)|Trying to call (\S+)", str(fault))
    refused = re.search(r"WeightsUnpickler error: (.*)", str(fault))
    if asked:
        return (
            f"refused: the pickle asks for {asked[1] or asked[2]}, which is code and not weights; "
            "nothing of it was run; use a safetensors copy of the model"
        )
    if refused:
        return (
            f"refused: not a plain pickle of tensors, or damaged ({refused[1][:160]}); nothing of it was run"
        )
    first = " ".join(str(fault).strip().splitlines()[:1])[:160]
    return f"not a torch checkpoint, or truncated ({type(fault).__name__}: {first}); fetch it again"


def check_zip(path: Path) -> None:
    """Raise CheckpointError unless `path` is a zip as torch.save writes it.

    Storages are read in place: every member must be stored once, uncompressed, wholly inside the file.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            names = [member.filename for member in members]
            if len(set(names)) != len(names):
                raise CheckpointError(f"{path}: corrupt: it holds the same member twice")
            if any(member.compress_type != zipfile.ZIP_STORED for member in members):
                raise CheckpointError(
                    f"{path}: it was compressed after saving, which torch does not do; unpack and resave it"
                )
            pickles = [member for member in members if member.filename.endswith("data.pkl")]
            if not pickles:
                raise CheckpointError(
                    f"{path}: a zip file, but not one that torch.save wrote (no data.pkl in it)"
                )
            if pickles[0].CRC:  # 0: saved without. A changed bit could swap two tensors of the same shape
                archive.read(pickles[0])
    except CheckpointError:
        raise
    except Exception as fault:  # zipfile raises many kinds for a damaged directory
        raise CheckpointError(
            f"{path}: corrupt or truncated torch checkpoint ({fault}); fetch it again"
        ) from None


def _only_tensors(path: Path, content: Any) -> dict[str, Any]:
    import torch

    if not isinstance(content, Mapping) or not content:
        raise CheckpointError(f"{path}: holds a {type(content).__name__}, expected a dict of tensors")
    for name, value in content.items():
        if not isinstance(name, str) or not isinstance(value, torch.Tensor):
            raise CheckpointError(
                f"{path}: {name!r} is a {type(value).__name__}, expected named tensors only"
            )
        if value.layout != torch.strided or value.is_quantized or value.is_meta:
            raise CheckpointError(f"{path}: {name} is not a plain dense tensor")
    return dict(content)
