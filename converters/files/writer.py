"""Sharded safetensors files whose header is known before the first tensor, in a folder that appears whole."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import shutil
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from tts_core.errors import CheckpointError, NotFoundError, ResourceError, SpeechError, UsageError
from tts_core.files.header import ITEM_SIZES, Stored, read_header

SHARD_BYTES = 5 * 2**30
_PIECE_BYTES = 2**20  # read back at a time
_SPARE_BYTES = 16 * 2**20  # headers, descriptions, and what a file system rounds up


@dataclass(frozen=True)
class Entry:
    """A tensor of an output file; dtype is safetensors' name."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Its size in the file."""
        return prod(self.shape) * ITEM_SIZES[self.dtype]


@dataclass(frozen=True)
class Written:
    """A tensor that a file should hold. crc: CRC-32 of its bytes, taken before they go to the writer."""

    entry: Entry
    crc: int

    @classmethod
    def of(cls, entry: Entry, tensor: np.ndarray) -> Written:
        """With the checksum of `tensor`."""
        return cls(entry, zlib.crc32(_octets(tensor)))


class SafetensorsWriter:
    """One safetensors file: the header at once, then tensors in any order, each where the header promised."""

    def __init__(self, path: Path, entries: Sequence[Entry], metadata: Mapping[str, str] | None = None):
        """metadata: of the header; None says that MLX's axes are meant."""
        header: dict[str, Any] = {"__metadata__": {"format": "mlx"} if metadata is None else dict(metadata)}
        self._places: dict[str, tuple[int, Entry]] = {}
        at = 0
        for entry in sorted(
            entries, key=lambda entry: -ITEM_SIZES[entry.dtype]
        ):  # keeps every tensor aligned
            header[entry.name] = {
                "dtype": entry.dtype,
                "shape": list(entry.shape),
                "data_offsets": [at, at + entry.nbytes],
            }
            self._places[entry.name] = at, entry
            at += entry.nbytes
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        self._data = 8 + len(text)
        self._size = self._data + at
        self._file = open(path, "xb", buffering=0)  # noqa: SIM115  closed by close()
        try:
            self._write(len(text).to_bytes(8, "little") + text)
        except BaseException:  # nobody else has it yet
            self._file.close()
            raise

    def write(self, name: str, tensor: np.ndarray) -> None:
        """Write one tensor, whose bytes must be those of its entry."""
        at, entry = self._places.pop(name)
        assert (tensor.shape, tensor.nbytes) == (entry.shape, entry.nbytes), (
            tensor.dtype,
            tensor.shape,
            entry,
        )
        self._file.seek(self._data + at)
        self._write(_octets(tensor))

    def close(self) -> None:
        """End a complete file."""
        assert not self._places, f"never written: {list(self._places)}"
        assert self._file.seek(0, os.SEEK_END) == self._size
        self._file.close()

    def abort(self) -> None:
        """End an incomplete one."""
        self._file.close()

    def _write(self, data: bytes | memoryview) -> None:
        view = memoryview(data)
        while view:  # a full disk writes a part first, then fails
            view = view[self._file.write(view) :]


def check_written(folder: Path, tensors: Sequence[Written]) -> None:
    """Raise CheckpointError unless a folder's files hold just these tensors, read back from the disk."""
    expected = {each.entry.name: each for each in tensors}
    found: dict[str, Written] = {}
    for path in sorted(folder.glob("model*.safetensors")):
        for name, stored in read_header(path)[0].items():
            found[name] = Written(Entry(name, stored.dtype, stored.shape), _crc_of(stored))
    wrong = [name for name in expected | found if expected.get(name) != found.get(name)]
    if wrong:
        raise CheckpointError(
            f"--mlx-path: {', '.join(wrong[:3])}: not on the disk as written ({len(wrong)} tensors); "
            "check the disk, or give another place"
        )


def _octets(tensor: np.ndarray) -> memoryview:
    """The bytes of an array in C order."""
    return np.ascontiguousarray(tensor).reshape(-1).view(np.uint8).data


def _crc_of(stored: Stored) -> int:
    crc, left = 0, stored.end - stored.begin
    with open(stored.file, "rb", buffering=0) as file:
        file.seek(stored.begin)
        while left and (piece := file.read(min(left, _PIECE_BYTES))):
            crc = zlib.crc32(piece, crc)
            left -= len(piece)
    return crc


def shards(entries: Sequence[Sequence[Entry]], limit: int = SHARD_BYTES) -> list[list[Entry]]:
    """Groups of entries, each kept together, in files of at most `limit` bytes; a larger one stands alone."""
    files: list[list[Entry]] = []
    size = limit
    for group in entries:
        nbytes = sum(entry.nbytes for entry in group)
        if not files or size + nbytes > limit:
            files.append([])
            size = 0
        files[-1] += group
        size += nbytes
    return files


def shard_names(count: int) -> list[str]:
    """File names as transformers and mlx-lm have them."""
    if count == 1:
        return ["model.safetensors"]
    return [f"model-{i + 1:05d}-of-{count:05d}.safetensors" for i in range(count)]


def write_json(path: Path, content: Any) -> None:
    """Sorted keys, indent 4: as mlx-lm writes its config.json."""
    path.write_text(json.dumps(content, indent=4, sort_keys=True) + "\n", "utf-8")


def check_destination(destination: Path, *, force: bool, sources: Sequence[Path] = ()) -> None:
    """Raise UsageError unless a folder may appear there. force: in place of an older converted one."""
    if not os.path.lexists(destination):
        return
    if not force:
        raise UsageError(f"--mlx-path: {destination} exists; give another name, or --force to replace it")
    if destination.is_symlink() or not destination.is_dir():
        raise UsageError(
            f"--mlx-path: {destination} is not a folder, --force does not replace it; remove it yourself"
        )
    if any(destination.iterdir()) and not (destination / "conversion.json").is_file():
        raise UsageError(
            f"--mlx-path: {destination} is not a converted model (it has no conversion.json), "
            "--force does not replace it; give another name"
        )
    inside = [file for file in sources if destination.resolve() in file.resolve().parents]
    if inside:
        raise UsageError(
            f"--mlx-path: {destination} holds {inside[0].name}, which is being converted; give another name"
        )


def check_space(folder: Path, needed: int) -> None:
    """Raise ResourceError unless `needed` bytes and 16 MiB to spare fit where `folder` is, or would be."""
    while not folder.exists():
        folder = folder.parent
    free, needed = shutil.disk_usage(folder).free, needed + _SPARE_BYTES
    if free < needed:
        raise ResourceError(
            f"--mlx-path: {folder} has {free / 1e6:,.0f} MB free, {needed / 1e6:,.0f} MB are needed"
        )


@contextlib.contextmanager
def appearing(destination: Path, *, replace: bool = False) -> Iterator[Path]:
    """A new folder beside `destination` that takes its place when the block ends and vanishes when it raises.

    replace: an older folder at `destination` goes then, not before. An OSError becomes one of our errors.
    """
    destination = destination.absolute()
    made = [folder for folder in destination.parents if not folder.exists()]  # innermost first
    own = secrets.token_hex(8)  # no process id: containers that share a folder have the same ones
    work = destination.with_name(f".{destination.name}.{own}.part")
    old = destination.with_name(f".{destination.name}.{own}.old")
    try:
        work.mkdir(parents=True)
        yield work
        if replace and destination.exists():
            os.rename(destination, old)
        os.rename(work, destination)
    except BaseException as fault:
        shutil.rmtree(work, ignore_errors=True)
        if old.exists() and not destination.exists():
            os.rename(old, destination)
        with contextlib.suppress(OSError):
            for folder in made:
                folder.rmdir()
        if isinstance(fault, OSError) and not isinstance(fault, SpeechError):
            raise _os_fault(destination, fault) from fault
        raise
    shutil.rmtree(old, ignore_errors=True)


def _os_fault(destination: Path, fault: OSError) -> SpeechError:
    if fault.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return ResourceError(f"--mlx-path: the disk of {destination.parent} is full; nothing was left there")
    reason = fault.strerror or str(fault)
    if fault.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.ENOTEMPTY):
        return UsageError(f"--mlx-path: {destination} cannot be written ({reason}); give another place")
    if isinstance(fault, FileNotFoundError):
        return NotFoundError(
            f"{fault.filename}: vanished while it was read; nothing was left at {destination}"
        )
    return ResourceError(f"--mlx-path: writing {destination} failed ({reason}); nothing was left there")
