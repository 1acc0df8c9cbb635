"""Writer of sharded safetensors files whose headers are complete before the first tensor."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from tts_core.files.header import ITEM_SIZES

SHARD_BYTES = 5 * 2**30
PIECE = 2**18  # bytes of a call: Linux finds room in memory for them two to three times as fast as for 2**26


@dataclass(frozen=True)
class TensorEntry:
    """A tensor of an output file; dtype is the safetensors name."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Size in the file."""
        return prod(self.shape) * ITEM_SIZES[self.dtype]


class SafetensorsWriter:
    """One safetensors file: the header first, then tensors in any order at the offsets of the header."""

    def __init__(self, path: Path, entries: Sequence[TensorEntry], metadata: Mapping[str, str] | None = None):
        """metadata: of the header; None marks tensors in MLX's axis order."""
        header: dict[str, Any] = {"__metadata__": {"format": "mlx"} if metadata is None else dict(metadata)}
        self._entries: dict[str, tuple[int, TensorEntry]] = {}
        at = 0
        for entry in sorted(entries, key=lambda entry: -ITEM_SIZES[entry.dtype]):  # aligns every tensor
            header[entry.name] = {
                "dtype": entry.dtype,
                "shape": list(entry.shape),
                "data_offsets": [at, at + entry.nbytes],
            }
            self._entries[entry.name] = at, entry
            at += entry.nbytes
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        self._data = 8 + len(text)
        self._size = self._data + at
        self._file = open(path, "xb", buffering=0)  # noqa: SIM115  closed by close()
        try:
            self._write(len(text).to_bytes(8, "little") + text)
            self._file.truncate(self._size)  # for readers of the header
        except BaseException:  # no caller can close it
            self._file.close()
            raise

    def write(self, name: str, tensor: np.ndarray) -> None:
        """Write one tensor; its shape and size must match its entry."""
        at, entry = self._entries.pop(name)
        assert (tensor.shape, tensor.nbytes) == (entry.shape, entry.nbytes), (
            tensor.dtype,
            tensor.shape,
            entry,
        )
        self._file.seek(self._data + at)
        self._write(octets(tensor))

    def fill(self, name: str, parts: Iterable[np.ndarray]) -> None:
        """Write one tensor from parts of its numbers, in order; their size must match its entry."""
        at, entry = self._entries.pop(name)
        self._file.seek(self._data + at)
        for part in parts:
            self._write(octets(part))
        assert self._file.tell() == self._data + at + entry.nbytes, entry

    def close(self) -> None:
        """Close a complete file."""
        assert not self._entries, f"never written: {list(self._entries)}"
        assert self._file.seek(0, os.SEEK_END) == self._size
        self._file.close()

    def abort(self) -> None:
        """Close an incomplete file."""
        self._file.close()

    def _write(self, data: bytes | memoryview) -> None:
        view = memoryview(data)
        while view:  # a full disk writes a part before it fails
            view = view[self._file.write(view[:PIECE]) :]


def octets(tensor: np.ndarray) -> memoryview:
    """Return the bytes of an array in C order."""
    return np.ascontiguousarray(tensor).reshape(-1).view(np.uint8).data


def shards(entries: Sequence[Sequence[TensorEntry]], limit: int = SHARD_BYTES) -> list[list[TensorEntry]]:
    """Distribute groups of entries over files of at most `limit` bytes; a larger group gets its own file."""
    files: list[list[TensorEntry]] = []
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
    """Name the files as transformers and mlx-lm do."""
    if count == 1:
        return ["model.safetensors"]
    return [f"model-{i + 1:05d}-of-{count:05d}.safetensors" for i in range(count)]


def write_json(path: Path, content: object, *, sort: bool = True) -> None:
    """Write JSON as mlx-lm does: indent 4, sorted keys unless their order says something."""
    path.write_text(json.dumps(content, indent=4, sort_keys=sort) + "\n", "utf-8")
