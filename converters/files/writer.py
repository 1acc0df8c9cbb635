"""Sharded safetensors files whose header is known before the first tensor, in a folder that appears whole."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from tts_core.errors import CheckpointError
from tts_core.files.header import ITEM_SIZES, Stored, read_header

SHARD_BYTES = 5 * 2**30
_PIECE_BYTES = 2**20  # read back at a time


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
