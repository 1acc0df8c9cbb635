"""Checkpoint files as one mapping of names to shapes, with tensors read one at a time.

Safetensors headers are checked completely before anything is read: a file that is truncated, corrupt or not
consistent is one CheckpointError. Tensors are then read, not mapped: a file that shrinks is an error.
Pickles go through PyTorch's restricted reader (weights_only): one that asks for code is refused, and no code
is run.
"""

from __future__ import annotations

import json
import math
import os
import re
import warnings
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from converters.files.dtypes import ITEM_SIZES, stored_type, widen
from tts_core.errors import CheckpointError, NotFoundError

_MAX_HEADER = 100_000_000  # bytes; the limit of the safetensors library
PICKLES = (".pth", ".pt", ".bin", ".th")
_INSIDE = ("state_dict", "model", "model_state")  # entries of a pickled dict that may hold its tensors


@dataclass(frozen=True)
class Stored:
    """Where a tensor lies: `begin` and `end` are byte offsets in its file."""

    file: Path
    dtype: str  # safetensors name
    shape: tuple[int, ...]
    begin: int
    end: int


class SafetensorsCheckpoint:
    """One or several safetensors files; `metadata` is that of their headers."""

    def __init__(self, files: Sequence[Path]):
        self.files = tuple(files)
        self.metadata: dict[str, Any] = {}
        self.entries: tuple[str, ...] = ()  # as of TorchCheckpoint
        self._stored: dict[str, Stored] = {}
        for file in self.files:
            stored, metadata = read_header(file)
            twice = sorted(stored.keys() & self._stored.keys())
            if twice:
                raise CheckpointError(
                    f"{file}: {', '.join(twice)} is also in {self._stored[twice[0]].file.name}"
                )
            self._stored |= stored
            self.metadata |= metadata
        self.shapes = {name: tensor.shape for name, tensor in self._stored.items()}
        self.dtypes = {name: tensor.dtype for name, tensor in self._stored.items()}

    def read(self, name: str) -> np.ndarray:
        """One tensor: floats as float32, other types as stored."""
        tensor = self._stored[name]
        flat = np.empty(math.prod(tensor.shape), stored_type(tensor.dtype))
        with open(tensor.file, "rb") as file:
            file.seek(tensor.begin)
            got = file.readinto(flat.data) if flat.size else 0
        if got != flat.nbytes:
            raise CheckpointError(f"{tensor.file}: {name} ends early: the file changed while it was read")
        return widen(flat, tensor.dtype).reshape(tensor.shape)


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


def read_header(path: Path) -> tuple[dict[str, Stored], dict[str, str]]:
    """(tensors, metadata) of a safetensors file, every byte accounted for. CheckpointError otherwise."""
    size = path.stat().st_size
    with open(path, "rb") as file:
        start = file.read(8)
        length = int.from_bytes(start, "little")
        if len(start) < 8 or length < 2 or length > _MAX_HEADER:
            raise CheckpointError(
                f"{path}: not a safetensors file, or its first bytes are lost; fetch it again"
            )
        if 8 + length > size:
            raise CheckpointError(
                f"{path}: truncated: its header takes {8 + length} bytes, the file has {size}; fetch it again"
            )
        raw = file.read(length)
    try:
        header = json.loads(raw.decode("utf-8"), object_pairs_hook=_without_duplicates)
        if not isinstance(header, dict):
            raise ValueError("it is not an object")
        metadata = header.pop("__metadata__", {})
        if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
            raise ValueError("__metadata__ is not a map of strings")
        stored = {name: _entry(name, fields, path, 8 + length) for name, fields in header.items()}
        _check_coverage(stored, 8 + length)
    except (ValueError, RecursionError) as fault:
        raise CheckpointError(f"{path}: corrupt safetensors header: {fault}; fetch the file again") from None
    end = max((tensor.end for tensor in stored.values()), default=8 + length)
    if end != size:
        state = "truncated" if end > size else "corrupt"
        raise CheckpointError(
            f"{path}: {state}: the header describes {end} bytes, the file has {size}; fetch it again"
        )
    return stored, metadata


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)} stands in it twice")
    return found


def _entry(name: str, fields: Any, path: Path, data: int) -> Stored:
    if not isinstance(fields, dict) or set(fields) != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"{name} does not have exactly dtype, shape and data_offsets")
    dtype, shape, offsets = fields["dtype"], fields["shape"], fields["data_offsets"]
    if not isinstance(dtype, str) or dtype not in ITEM_SIZES:
        raise ValueError(f"{name} has the unknown dtype {dtype!r}")
    if not _are_sizes(shape) or not _are_sizes(offsets) or len(offsets) != 2:
        raise ValueError(f"{name} has shape {shape} and offsets {offsets}, expected lists of sizes")
    begin, end = offsets
    if end - begin != math.prod(shape) * ITEM_SIZES[dtype]:
        raise ValueError(
            f"{name} takes {end - begin} bytes, its shape {shape} and dtype {dtype} ask for others"
        )
    return Stored(path, dtype, tuple(shape), data + begin, data + end)


def _are_sizes(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and 0 <= value < 2**63 for value in values)


def _check_coverage(stored: Mapping[str, Stored], data: int) -> None:
    """Tensors must follow each other without a hole or an overlap."""
    at = data
    for name, tensor in sorted(stored.items(), key=lambda item: (item[1].begin, item[1].end)):
        if tensor.begin != at:
            raise ValueError(f"{name} {'overlaps another tensor' if tensor.begin < at else 'follows a hole'}")
        at = tensor.end


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
    strange = [name for name in names if name != os.path.basename(name) or not name.endswith(".safetensors")]
    if strange:
        raise CheckpointError(f"{path}: {', '.join(strange)} is not the name of a safetensors file beside it")
    absent = [name for name in names if not (path.parent / name).is_file()]
    if absent:
        raise CheckpointError(f"{path}: {', '.join(absent)} is not there, of {len(names)} shards; fetch it")
    files = [path.parent / name for name in names]
    for file in files:
        held, said = set(read_header(file)[0]), {name for name, shard in places.items() if shard == file.name}
        if held != said:
            example = sorted(held ^ said)[0]
            raise CheckpointError(
                f"{path}: differs from {file.name} in {len(held ^ said)} tensors, {example} among them"
            )
    return files


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object, or a CheckpointError that names the file."""
    try:
        content = json.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError) as fault:
        raise CheckpointError(f"{path}: not readable as JSON: {fault}") from None
    if not isinstance(content, dict):
        raise CheckpointError(f"{path}: not a JSON object")
    return content


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
