"""Readers of checkpoint files: names and shapes at once, tensors one at a time.

Headers are checked completely before a tensor is read (tts_core.files.header). Tensors are read, not mapped;
a file that changed since its header was checked is an error.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from converters.files.blocks import blocks
from converters.files.dtypes import stored_type, widen
from tts_core.errors import CheckpointError
from tts_core.files.header import TensorRange, read_header
from tts_core.files.json_object import read_json
from tts_core.files.regular import Identity, check_unchanged, identity, opened, read_into
from tts_core.printable import counted

# what torch.compile, DataParallel and peft put before the names of a model's tensors
_WRAPPERS = re.compile(r"(?:_orig_mod\.|module\.|base_model\.model\.)+")
LONGEST_NAME = 255  # bytes of a file's name, on all file systems in use


class Checkpoint:
    """Tensors in files by name, and the data stored beside them; `add` adds a tensor.

    Names are without the prefixes of a wrapped model: torch.compile's, DataParallel's and peft's.
    """

    def __init__(self, identities: Mapping[Path, Identity]):
        self.files = tuple(identities)
        self.metadata: dict[Any, Any] = {}
        self.entries: tuple[str, ...] = ()  # see TorchCheckpoint
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.dtypes: dict[str, str] = {}  # safetensors names
        self._identities = identities
        self._stored: dict[str, TensorRange] = {}
        self._strides: dict[str, tuple[int, ...]] = {}  # of tensors whose numbers are not in their order

    def add(self, name: str, stored: TensorRange, strides: tuple[int, ...] | None = None) -> None:
        """Add a tensor. strides: of its axes, in numbers; None if they follow each other in C order.

        Raises CheckpointError for two tensors of a name.
        """
        wrapped = _WRAPPERS.match(name)
        name = name[wrapped.end() :] if wrapped else name
        if name in self._stored:
            first = self._stored[name].file
            where = "in it with another prefix" if first == stored.file else f"in {first.name}"
            raise CheckpointError(f"{stored.file}: {name:.160} is also {where}")
        self._stored[name], self.shapes[name], self.dtypes[name] = stored, stored.shape, stored.dtype
        if strides is not None and not _is_in_order(stored.shape, strides):
            self._strides[name] = strides

    def read(self, name: str) -> np.ndarray:
        """Read one tensor: floats as float32, other types as stored."""
        tensor, code = self._stored[name], stored_type(self.dtypes[name])
        flat = np.empty((tensor.end - tensor.begin) // code.itemsize, code)
        with opened(tensor.file, self._identities[tensor.file]) as file:
            file.seek(tensor.begin)
            read_into(file, flat.view(np.uint8).data, tensor.file)
        if name in self._strides:
            steps = [code.itemsize * stride for stride in self._strides[name]]
            flat = np.lib.stride_tricks.as_strided(flat, tensor.shape, steps).copy()
        return widen(flat, tensor.dtype).reshape(tensor.shape)

    def blocks(self, name: str, size: int) -> Iterator[np.ndarray]:
        """Read one tensor's floats as float32, `size` numbers at a time; valid until the next piece."""
        tensor = self._stored[name]
        if name in self._strides:
            yield from blocks(self.read(name), size)
            return
        left, buffer = math.prod(tensor.shape), np.empty(size, stored_type(tensor.dtype))
        with opened(tensor.file, self._identities[tensor.file]) as file:
            file.seek(tensor.begin)
            while left:
                piece = buffer[:left]
                read_into(file, piece.view(np.uint8).data, tensor.file)
                yield widen(piece, tensor.dtype)
                left -= len(piece)

    def check_unchanged(self) -> None:
        """Raise CheckpointError if a file is not the one that was opened."""
        for file, expected in self._identities.items():
            check_unchanged(file, expected)


class SafetensorsCheckpoint(Checkpoint):
    """One or several safetensors files; `metadata` is from their headers."""

    def __init__(self, files: Sequence[Path]):
        super().__init__({file: identity(file) for file in files})
        for file in self.files:
            stored, metadata = read_header(file)
            for name, tensor in stored.items():
                self.add(name, tensor)
            self.metadata |= metadata


def _is_in_order(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Return True if the numbers of a tensor follow each other in C order."""
    step = 1
    for size, stride in reversed(list(zip(shape, strides, strict=True))):
        if size > 1 and stride != step:
            return False
        step *= size
    return True


def _names_weights(name: str) -> bool:
    """Return True for the name of a safetensors file without a folder."""
    plain = name.isprintable() and name == os.path.basename(name)
    return plain and name.endswith(".safetensors") and len(name.encode()) <= LONGEST_NAME


def _some(names: Sequence[str]) -> str:
    """List the first three names and count the others."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def read_index(path: Path) -> list[Path]:
    """Read the shards of a *.safetensors.index.json; each must exist and contain the listed tensors.

    A whole file of the index's name rules over it, as in transformers: it was saved later, and alone.
    """
    index = read_json(path)
    weight_map = index.get("weight_map")
    if (
        not isinstance(weight_map, dict)
        or not weight_map
        or not all(isinstance(shard, str) for shard in weight_map.values())
    ):
        raise CheckpointError(f"{path}: no weight_map of tensor names to file names in it")
    names = sorted(set(weight_map.values()))
    strange = [name for name in names if not _names_weights(name)]
    if strange:
        raise CheckpointError(f"{path}: {_some(strange)} is not the name of a safetensors file beside it")
    whole = path.with_name(path.name.removesuffix(".index.json"))
    if names == [whole.name] or (whole.name not in names and whole.is_file()):
        return [whole]
    absent = [name for name in names if not (path.parent / name).exists()]
    if absent:
        raise CheckpointError(f"{path}: {_some(absent)} is not there, of {len(names)} shards; fetch it")
    files = [path.parent / name for name in names]
    listed: dict[str, set[str]] = {name: set() for name in names}
    for tensor, shard in weight_map.items():
        listed[shard].add(tensor)
    for file in files:
        held, said = set(read_header(file)[0]), listed[file.name]
        if held != said:
            example = sorted(held ^ said)[0]
            raise CheckpointError(
                f"{path}: differs from {file.name} in {counted(len(held ^ said), 'tensor')}, "
                f"{example} among them"
            )
    return files
