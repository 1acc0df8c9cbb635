"""Reader of torch pickles: tensors by name, mapped from the file; other contents as plain data.

Every file is bounded before torch.load(weights_only=True) reads it (converters/files/pickle_bounds.py); what
cannot be bounded is tried in a child process first. A file that asks for code is refused; none is run.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from converters.files.old_head import read_head
from converters.files.pickle_bounds import Bounds, measure
from converters.files.pickle_child import try_in_child
from converters.files.pieces import pieces
from converters.files.plain import Plain
from converters.files.stand_ins import stand_ins
from converters.files.torch_archive import (
    first_line,
    import_torch,
    is_zip,
    read_archive,
    reason_of,
    utf8_name,
)
from tts_core.errors import CheckpointError
from tts_core.files.header import MOST_AXES
from tts_core.files.regular import check_unchanged, identity, opened

PICKLES = (".pth", ".pt", ".bin", ".th")
SHARING = 4  # times the file's size that its tensors may take where they share or repeat storages
SPARE = 64 << 20  # bytes that they may take in any case
_INSIDE = ("state_dict", "model", "model_state")  # entries of a pickled dict that may contain its tensors
_NOTHING_RUN = "nothing of it was run"

_DTYPES = {
    **{"torch.float64": "F64", "torch.float32": "F32", "torch.float16": "F16", "torch.bfloat16": "BF16"},
    **{f"torch.int{bits}": f"I{bits}" for bits in (64, 32, 16, 8)},
    **{
        "torch.uint8": "U8",
        "torch.bool": "BOOL",
        "torch.float8_e4m3fn": "F8_E4M3",
        "torch.float8_e5m2": "F8_E5M2",
    },
}  # safetensors names


class TorchCheckpoint:
    """One pickle: a dict of tensors, or a dict with an entry that is one.

    `entries` names the other entries of the dict, `metadata` contains them as plain data, and those of an
    entry "metadata" as well. A file with OmegaConf settings is a tree: the tensors' names are their paths,
    `2.model_state.conv_codec.bias`, and `metadata` is everything else.
    """

    def __init__(self, file: Path):
        self.files = (file,)
        self._identity = identity(file)
        loaded = _load(file)
        self.entries, self.metadata = loaded.entries, loaded.metadata
        self._tensors = loaded.tensors
        self.shapes = {name: tuple(tensor.shape) for name, tensor in self._tensors.items()}
        self.dtypes = {name: _DTYPES.get(str(tensor.dtype), "") for name, tensor in self._tensors.items()}
        self.check_unchanged()

    def read(self, name: str) -> np.ndarray:
        """Read one tensor: floats as float32, other types as stored."""
        self.check_unchanged()  # a mapped file that shrinks would end the process
        tensor = self._tensors[name].detach()
        return (tensor.float() if tensor.is_floating_point() else tensor).numpy()

    def pieces(self, name: str, size: int) -> Iterator[np.ndarray]:
        """Read one tensor's floats as float32, `size` numbers at a time."""
        return pieces(self.read(name), size)

    def check_unchanged(self) -> None:
        """Raise CheckpointError if the file is not the one that was opened."""
        check_unchanged(self.files[0], self._identity)


@dataclass(frozen=True)
class PickleContents:
    """The contents of a pickle."""

    tensors: dict[str, Any]
    metadata: dict[Any, Any]
    entries: tuple[str, ...]


def _load(path: Path) -> PickleContents:
    import_torch(path)
    bounds = _bounds(path)
    if bounds.doubt is not None:
        try_in_child(path)
    return _read(path, bounds)


def read_here(path: Path) -> None:
    """Read a pickle in this process, whatever that costs. Raises CheckpointError."""
    _read(path, _bounds(path))


def _read(path: Path, bounds: Bounds) -> PickleContents:
    torch = import_torch(path)
    try:
        with (
            warnings.catch_warnings(action="ignore"),
            torch.serialization.safe_globals(stand_ins()),
            utf8_name(path) as name,
        ):
            # a file of torch < 1.6 is no zip and cannot be mapped: it takes its size in memory
            content = torch.load(name, map_location="cpu", weights_only=True, mmap=is_zip(path))
    except MemoryError:
        raise
    except Exception as fault:  # torch raises many kinds for a damaged pickle
        if "allocate memory" in str(fault):
            raise MemoryError(f"{path}: {reason_of(fault)}") from fault
        raise CheckpointError(f"{path}: {_describe(fault)}") from fault
    try:
        tree = any(name.startswith("omegaconf.") for name in bounds.names)
        loaded = _tree(content) if tree else _flat(content)
        _check_sizes(loaded.tensors, path.stat().st_size)
    except CheckpointError as fault:
        raise CheckpointError(f"{path}: {fault}") from None
    return loaded


def _bounds(path: Path) -> Bounds:
    """Measure the pickle in a file."""
    archive = read_archive(path) if is_zip(path) else None
    try:
        if archive is None:
            return _measure_old(path)
        bounds = measure(archive.pickle)
        for key, nbytes in bounds.storages.items():
            held = archive.storages.get(key)
            if held != nbytes:
                found = "is missing" if held is None else f"has {held} bytes, not {nbytes}"
                raise CheckpointError(f"corrupt: storage {key} {found}; fetch it again")
    except CheckpointError as fault:
        raise CheckpointError(f"{path}: {fault}; {_NOTHING_RUN}") from None
    except (ValueError, IndexError) as fault:
        raise CheckpointError(
            f"{path}: refused: damaged, or not a pickle of tensors ({fault}); {_NOTHING_RUN}"
        ) from None
    return bounds


def _measure_old(path: Path) -> Bounds:
    """Measure a file of torch < 1.6: pickles of the machine, of the tensors and of the storages' order."""
    with opened(path) as file:
        read_head(file)
        size = path.stat().st_size
        with open(file.fileno(), "rb", closefd=False) as buffered:
            machine, bounds, order = measure(buffered), measure(buffered), measure(buffered)
    if sum(bounds.storages.values()) > size:
        raise CheckpointError(f"truncated: its storages take more than {size} bytes; fetch it again")
    return replace(bounds, doubt=machine.doubt or bounds.doubt or order.doubt)


def _tree(content: Any) -> PickleContents:
    """Take apart a file with OmegaConf settings."""
    tensors: dict[str, Any] = {}

    def take(path: str, tensor: Any) -> None:
        if path in tensors:
            raise CheckpointError(f"refused: two tensors are called {path}")
        tensors[path] = tensor

    metadata = Plain(take).of(content)
    if not isinstance(metadata, dict) or not tensors:
        raise CheckpointError(f"contains no dict of tensors; {_NOTHING_RUN}")
    _check_tensors(tensors)
    return PickleContents(tensors, metadata, ())


def _flat(content: Any) -> PickleContents:
    """Take apart a dict of tensors, or one that contains it."""
    metadata: dict[Any, Any] = {}
    entries: tuple[str, ...] = ()
    inside = _holder(content) if isinstance(content, Mapping) else None
    if inside is not None:
        others = {name: value for name, value in content.items() if name != inside}
        metadata = {str(name): value for name, value in Plain().of(others).items()}
        entries = tuple(metadata)
        nested = metadata.get("metadata")
        metadata |= nested if isinstance(nested, Mapping) else {}
        content = content[inside]
    if not isinstance(content, Mapping) or not content:
        raise CheckpointError(f"contains a {type(content).__name__}, expected a dict of tensors")
    _check_tensors(content)
    return PickleContents(dict(content), metadata, entries)


def _holder(content: Mapping[Any, Any]) -> str | None:
    """Find the entry that contains the tensors; None if the dict itself does."""
    return next((name for name in _INSIDE if isinstance(content.get(name), Mapping)), None)


def _check_tensors(tensors: Mapping[Any, Any]) -> None:
    """Raise CheckpointError for values that are no plain tensors."""
    import torch

    for name, value in tensors.items():
        if not isinstance(name, str) or not isinstance(value, torch.Tensor):
            raise CheckpointError(f"{name!r:.80} is a {type(value).__name__}, expected named tensors only")
        if value.layout != torch.strided or value.is_quantized or value.is_meta:
            raise CheckpointError(f"{name} is not a plain dense tensor")
        if value.ndim > MOST_AXES:
            raise CheckpointError(f"{name} has {value.ndim} axes; at most {MOST_AXES} are supported")


def _check_sizes(tensors: Mapping[str, Any], size: int) -> None:
    """Raise CheckpointError for tensors that are together much larger than a file of `size` bytes."""
    storages = {
        each.untyped_storage().data_ptr(): each.untyped_storage().nbytes() for each in tensors.values()
    }
    if (held := sum(storages.values())) > size:
        raise CheckpointError(f"corrupt: its storages take {held} bytes, the file {size}")
    total = sum(each.nbytes for each in tensors.values())
    if total > max(SHARING * size, SPARE):
        largest = max(tensors, key=lambda name: tensors[name].nbytes)
        raise CheckpointError(
            f"refused: its tensors take {total} bytes, the file {size}: {largest:.80} and others are "
            "expanded or share storages; save clones of them"
        )


def _describe(fault: Exception) -> str:
    """Put torch's refusal into words."""
    asked = re.search(r"GLOBAL (\w[\w.]*)|Trying to call (\S+)", str(fault))
    refused = re.search(r"WeightsUnpickler error: (.*)", str(fault), re.DOTALL)
    if asked:
        return (
            f"refused: the pickle asks for {asked[1] or asked[2]}, which is code and not weights; "
            f"{_NOTHING_RUN}; use a safetensors copy of the model"
        )
    if refused:
        reason = first_line(refused[1]) or "no reason given"
        return f"refused: not a plain pickle of tensors, or damaged ({reason}); {_NOTHING_RUN}"
    return f"not a torch checkpoint, or truncated ({reason_of(fault)}); fetch it again"
