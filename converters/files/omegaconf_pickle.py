"""PyTorch zip files whose pickle holds OmegaConf objects beside tensors, as audiocraft saves its models.

Neither PyTorch nor omegaconf is needed, and nothing of the file is run: see
converters/files/restricted_pickle.py. A tensor is read from its storage when it is asked for, one at a time.
"""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from converters.files.dtypes import stored_type, widen
from converters.files.readers import check_zip
from converters.files.restricted_pickle import Node, Storage, Tensor, interpret
from tts_core.errors import CheckpointError
from tts_core.files.header import ITEM_SIZES

_LARGEST_PICKLE = 64 << 20  # bytes; the published file's has 1.2 million
_DEEPEST = 64  # containers within containers
_MOST_VALUES = 1_000_000


class OmegaConfCheckpoint:
    """One file. `metadata` is all of it but the tensors, OmegaConf objects as plain dicts and lists.

    A tensor's name is its path: `2.model_state.conv_codec.bias`. It offers what `converters.files.readers`'
    checkpoints offer. Raises CheckpointError for a file that is damaged or asks for anything not ALLOWED.
    """

    def __init__(self, file: Path):
        self.files = (file,)
        self.entries: tuple[str, ...] = ()  # of `metadata`, none is left unread
        with open(file, "rb") as opened:
            if opened.read(4) != b"PK\x03\x04":
                raise CheckpointError(f"{file}: not a file that torch.save wrote (no zip)")
        check_zip(file)
        with zipfile.ZipFile(file) as archive:
            self._members = {info.filename: info for info in archive.infolist()}
            pickled = next(name for name in self._members if name.endswith("data.pkl"))
            self._prefix = pickled.removesuffix("data.pkl")
            if self._members[pickled].file_size > _LARGEST_PICKLE:
                raise CheckpointError(f"{file}: its data.pkl is too large to be a model's description")
            order = f"{self._prefix}byteorder"
            if order in self._members and archive.read(order) != b"little":
                raise CheckpointError(f"{file}: its numbers are not little-endian")
            content = archive.read(pickled)
        try:
            tree = interpret(content)
            flattener = _Flattener()
            self.metadata: dict[Any, Any] = flattener.plain(tree, "")
            found = flattener.tensors
            if not isinstance(self.metadata, dict) or not found:
                raise CheckpointError("it holds no dict of tensors")
            for name, tensor in found.items():
                self._check(name, tensor)
        except CheckpointError as fault:
            raise CheckpointError(f"{file}: {fault}; nothing of it was run") from None
        except (ValueError, TypeError, LookupError, OverflowError) as fault:
            raise CheckpointError(
                f"{file}: refused: damaged, or not a pickle of tensors and settings ({fault!r:.160}); "
                "nothing of it was run"
            ) from None
        self._tensors = found
        self.shapes = {name: tensor.shape for name, tensor in found.items()}
        self.dtypes = {name: tensor.storage.dtype for name, tensor in found.items()}

    def read(self, name: str) -> np.ndarray:
        """One tensor: floats as float32, other types as stored."""
        tensor = self._tensors[name]
        kind = stored_type(tensor.storage.dtype)
        flat = np.empty(tensor.span, kind)
        with open(self.files[0], "rb") as file:
            file.seek(self._data_start(file, tensor.storage) + tensor.offset * kind.itemsize)
            got = file.readinto(flat.data) if flat.size else 0
        if got != flat.nbytes:
            raise CheckpointError(f"{self.files[0]}: {name} ends early: the file changed while it was read")
        steps = tuple(step * kind.itemsize for step in tensor.strides)
        shaped = np.lib.stride_tricks.as_strided(flat, tensor.shape, steps)
        return widen(np.ascontiguousarray(shaped).reshape(tensor.shape), tensor.storage.dtype)

    def _data_start(self, file: Any, storage: Storage) -> int:
        """Where a member's bytes begin: behind its local header, whose two last fields vary in length."""
        begin = self._members[f"{self._prefix}data/{storage.key}"].header_offset
        here = file.tell()
        file.seek(begin + 26)
        lengths = file.read(4)
        file.seek(here)
        return begin + 30 + int.from_bytes(lengths[:2], "little") + int.from_bytes(lengths[2:], "little")

    def _check(self, name: str, tensor: Tensor) -> None:
        """Every number of a tensor must lie in its storage, and the storage in its member of the file."""
        storage = tensor.storage
        member = self._members.get(f"{self._prefix}data/{storage.key}")
        if member is None:
            raise CheckpointError(f"corrupt: the storage of {name} is missing")
        if member.file_size != storage.count * ITEM_SIZES[storage.dtype]:
            raise CheckpointError(
                f"corrupt: the storage of {name} has {member.file_size} bytes for {storage.count} numbers"
            )
        if (
            len(tensor.shape) != len(tensor.strides)
            or min((tensor.offset, *tensor.shape, *tensor.strides)) < 0
        ):
            raise CheckpointError(f"corrupt: {name} has shape {tensor.shape}, strides {tensor.strides}")
        if tensor.offset + tensor.span > storage.count or math.prod(tensor.shape) > storage.count:
            raise CheckpointError(f"corrupt: {name} reaches beyond its storage")


def holds_omegaconf(file: Path) -> bool:
    """Whether a file is a zip of torch.save whose pickle names omegaconf's classes; reads its pickle only."""
    try:
        with zipfile.ZipFile(file) as archive:
            pickled = [info for info in archive.infolist() if info.filename.endswith("data.pkl")]
            small = pickled and pickled[0].file_size <= _LARGEST_PICKLE
            return bool(small) and b"comegaconf." in archive.read(pickled[0])
    except (OSError, zipfile.BadZipFile, NotImplementedError, RuntimeError):
        return False


class _Flattener:
    """Takes what a pickle describes apart: plain containers without OmegaConf, and tensors by their paths."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self.left = _MOST_VALUES

    def plain(self, value: Any, name: str, depth: int = _DEEPEST) -> Any:
        """`value` as dicts, lists, numbers and strings; the same container may stand at several places."""
        self.left -= 1
        if not depth or not self.left:
            raise CheckpointError(f"refused: {name[:80]} is nested too deeply, or holds too many values")
        if isinstance(value, Node):
            inner = value.state.get("_val" if value.kind == "omegaconf.nodes AnyNode" else "_content")
            return self.plain(inner, name, depth - 1)
        if isinstance(value, dict):
            kept = {}
            for key, item in value.items():
                path = f"{name}.{key}" if name else str(key)
                if isinstance(item, Tensor):
                    self._take(path, item)
                else:
                    kept[key] = self.plain(item, path, depth - 1)
            return kept
        if isinstance(value, list | tuple):
            return [self.plain(item, f"{name}.{i}", depth - 1) for i, item in enumerate(value)]
        if value is None or isinstance(value, bool | int | float | str):
            return value
        raise CheckpointError(f"refused: {name[:80] or 'it'} is no plain value")

    def _take(self, path: str, tensor: Tensor) -> None:
        if path in self.tensors:
            raise CheckpointError(f"refused: two tensors are called {path[:80]}")
        self.tensors[path] = tensor
