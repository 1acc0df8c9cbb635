"""Reader of torch pickles: tensors by name, mapped from the file; other contents as plain data.

Every file is bounded before torch.load(weights_only=True) reads it (converters/files/pickle_bounds.py); what
cannot be bounded is tried in a child process first. A file that asks for code is refused; none is run.
"""

from __future__ import annotations

import os
import re
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from converters.files.pickle_bounds import LARGEST_PICKLE, Bounds, measure
from converters.files.pickle_child import try_in_child
from converters.files.plain import Plain
from converters.files.stand_ins import stand_ins
from tts_core.errors import CheckpointError, NotFoundError, SpeechError
from tts_core.files.header import MOST_AXES
from tts_core.files.regular import check_unchanged, identity, opened, reading

PICKLES = (".pth", ".pt", ".bin", ".th")
SHARING = 4  # times the file's size that its tensors may take where they share storages
_INSIDE = ("state_dict", "model", "model_state")  # entries of a pickled dict that may contain its tensors
_NOTHING_RUN = "nothing of it was run"
_MOST_MEMBERS = 100_000  # of a zip
# the beginning of a file of torch < 1.6: pickles of a number and of the format's version
_OLD = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03."

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

    def check_unchanged(self) -> None:
        """Raise CheckpointError if the file is not the one that was opened."""
        check_unchanged(self.files[0], self._identity)


@dataclass(frozen=True)
class Loaded:
    """The contents of a pickle."""

    tensors: dict[str, Any]
    metadata: dict[Any, Any]
    entries: tuple[str, ...]


def _load(path: Path) -> Loaded:
    _torch(path)
    bounds = _bounds(path)
    if bounds.doubt is not None:
        try_in_child(path)
    return _read(path, bounds)


def read_here(path: Path) -> None:
    """Read a pickle in this process, whatever that costs. Raises CheckpointError."""
    _read(path, _bounds(path))


def _read(path: Path, bounds: Bounds) -> Loaded:
    torch = _torch(path)
    try:
        with (
            warnings.catch_warnings(action="ignore"),
            torch.serialization.safe_globals(stand_ins()),
            _utf8(path) as name,
        ):
            # a file of torch < 1.6 is no zip and cannot be mapped: it takes its size in memory
            content = torch.load(name, map_location="cpu", weights_only=True, mmap=_is_zip(path))
    except MemoryError:
        raise
    except Exception as fault:  # torch raises many kinds for a damaged pickle
        if "allocate memory" in str(fault):
            raise MemoryError(f"{path}: {_reason(fault)}") from fault
        raise CheckpointError(f"{path}: {_describe(fault)}") from fault
    try:
        tree = any(name.startswith("omegaconf.") for name in bounds.names)
        loaded = _tree(content) if tree else _flat(content)
        _check_sizes(loaded.tensors, path.stat().st_size)
    except CheckpointError as fault:
        raise CheckpointError(f"{path}: {fault}") from None
    return loaded


@contextmanager
def _utf8(path: Path) -> Iterator[str]:
    """Name a file so that torch can open it, which takes UTF-8 only."""
    name = os.fspath(path)
    try:
        name.encode()
    except UnicodeEncodeError:
        with open(path, "rb") as file:
            yield f"/dev/fd/{file.fileno()}"
    else:
        yield name


def _torch(path: Path) -> Any:
    try:
        import torch
    except ImportError:
        raise NotFoundError(
            f"{path}: reading a pickle needs PyTorch, which is not installed; pip install 'mlx-port[torch]'"
        ) from None
    return torch


def _is_zip(path: Path) -> bool:
    with opened(path) as file:
        return file.read(4) == b"PK\x03\x04"


def _bounds(path: Path) -> Bounds:
    """Measure the pickle in a file."""
    archive = _archive(path) if _is_zip(path) else None
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
        if file.read(len(_OLD)) != _OLD:
            raise CheckpointError("refused: not a file that torch.save wrote")
        size = path.stat().st_size
        with open(file.fileno(), "rb", closefd=False) as buffered:
            machine, bounds, order = measure(buffered), measure(buffered), measure(buffered)
    if sum(bounds.storages.values()) > size:
        raise CheckpointError(f"truncated: its storages take more than {size} bytes; fetch it again")
    return replace(bounds, doubt=machine.doubt or bounds.doubt or order.doubt)


@dataclass(frozen=True)
class _Archive:
    """A zip as torch.save writes it. storages: key → bytes."""

    pickle: bytes
    storages: dict[str, int]


def _archive(path: Path) -> _Archive:
    """Open a zip as torch.save writes it: every member once, uncompressed, in one folder, inside the file.

    Storages are read in place. Raises CheckpointError for any other zip.
    """
    try:
        with reading(path), zipfile.ZipFile(path) as archive:
            members = {member.filename: member for member in archive.infolist()}
            if len(members) != len(archive.infolist()) or len(members) != len({*map(str.lower, members)}):
                raise CheckpointError(f"{path}: corrupt: it contains the same member twice")
            if len(members) > _MOST_MEMBERS:
                raise CheckpointError(f"{path}: {len(members)} members; at most {_MOST_MEMBERS} are read")
            if any(member.compress_type != zipfile.ZIP_STORED for member in members.values()):
                raise CheckpointError(
                    f"{path}: it was compressed after saving, which torch does not do; unpack and resave it"
                )
            folder = next(iter(members)).partition("/")[0] + "/"
            described = members.get(f"{folder}data.pkl")
            if described is None:
                raise CheckpointError(
                    f"{path}: a zip file, but not one that torch.save wrote (no data.pkl in its first folder)"
                )
            if described.file_size > LARGEST_PICKLE:
                raise CheckpointError(
                    f"{path}: its data.pkl takes {described.file_size} bytes, too many for a model's"
                )
            order = members.get(f"{folder}byteorder")
            if order is not None and (order.file_size > 6 or _content(archive, order) != b"little"):
                raise CheckpointError(
                    f"{path}: its numbers are not little-endian; resave it on another machine"
                )
            _content(archive, described)
            end, start = archive.start_dir, f"{folder}data/"
            storages = {}
            for name, member in members.items():
                if member.header_offset + 30 + len(name) + member.file_size > end:
                    raise CheckpointError(f"{path}: corrupt: {name} reaches beyond the file's end")
                if name.startswith(start):
                    storages[name.removeprefix(start)] = member.file_size
            # as torch.load finds it: two readers of a damaged zip may not agree
            with _utf8(path) as name:
                content = _torch(path)._C.PyTorchFileReader(name).get_record("data.pkl")
    except SpeechError:
        raise
    except Exception as fault:  # zipfile and torch raise many kinds for a damaged directory
        raise CheckpointError(
            f"{path}: corrupt or truncated torch checkpoint ({_reason(fault)}); fetch it again"
        ) from None
    return _Archive(content, storages)


def _content(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    """Read a member and compare its checksum: a changed bit could swap two tensors of one shape."""
    if not member.CRC:  # saved without
        member.CRC = None  # pyright: ignore[reportAttributeAccessIssue]
    return archive.read(member)


def _tree(content: Any) -> Loaded:
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
    return Loaded(tensors, metadata, ())


def _flat(content: Any) -> Loaded:
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
    return Loaded(dict(content), metadata, entries)


def _holder(content: Mapping[Any, Any]) -> str | None:
    """Find the entry that contains the tensors; None if the dict itself does."""
    return next((name for name in _INSIDE if isinstance(content.get(name), Mapping)), None)


def _check_tensors(tensors: Mapping[Any, Any]) -> None:
    """Raise CheckpointError for values that are no plain tensors, or larger than their storages."""
    import torch

    for name, value in tensors.items():
        if not isinstance(name, str) or not isinstance(value, torch.Tensor):
            raise CheckpointError(f"{name!r:.80} is a {type(value).__name__}, expected named tensors only")
        if value.layout != torch.strided or value.is_quantized or value.is_meta:
            raise CheckpointError(f"{name} is not a plain dense tensor")
        if value.ndim > MOST_AXES:
            raise CheckpointError(f"{name} has {value.ndim} axes; at most {MOST_AXES} are supported")
        if value.nbytes > value.untyped_storage().nbytes():
            raise CheckpointError(f"corrupt: {name} repeats its storage, which is smaller than itself")


def _check_sizes(tensors: Mapping[str, Any], size: int) -> None:
    """Raise CheckpointError for tensors that are together much larger than a file of `size` bytes."""
    storages = {
        each.untyped_storage().data_ptr(): each.untyped_storage().nbytes() for each in tensors.values()
    }
    total = sum(each.nbytes for each in tensors.values())
    if sum(storages.values()) > size or total > SHARING * size:
        raise CheckpointError(f"corrupt: its tensors take {total} bytes, the file {size}")


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
        reason = _first_line(refused[1]) or "no reason given"
        return f"refused: not a plain pickle of tensors, or damaged ({reason}); {_NOTHING_RUN}"
    return f"not a torch checkpoint, or truncated ({_reason(fault)}); fetch it again"


def _reason(fault: Exception) -> str:
    """Name an exception's kind, and its text where it has one."""
    line = _first_line(str(fault))
    return f"{type(fault).__name__}: {line}" if line else type(fault).__name__


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")[:160]
