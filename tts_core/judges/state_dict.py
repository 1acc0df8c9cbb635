"""Read float32 tensors from a file of torch.save without PyTorch.

Only for files whose hash is known (tts_core.judges.wheels): a checkpoint from elsewhere goes through
converters.files.pickles, which bounds what it may cost.
"""

from __future__ import annotations

import io
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

DTYPES = {"FloatStorage": np.dtype("<f4"), "LongStorage": np.dtype("<i8")}
# a legacy file begins with three pickles: a magic number, the version and the sizes of C's types
LEGACY_HEAD = 3


class _Storage:
    """Numbers of one storage, known once the pickle has been read."""

    def __init__(self, dtype: np.dtype):
        self.dtype, self.numbers = dtype, np.zeros(0, dtype)


class _Tensor:
    """A view of a storage."""

    def __init__(self, storage: _Storage, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]):
        self.storage, self.offset, self.shape, self.strides = storage, offset, shape, strides

    def array(self) -> np.ndarray:
        """Copy the numbers, contiguous."""
        size = self.storage.dtype.itemsize
        view = np.lib.stride_tricks.as_strided(
            self.storage.numbers[self.offset :], self.shape, [size * stride for stride in self.strides]
        )
        return view.copy()


class _Unpickler(pickle.Unpickler):
    """Builds tensors and containers; any other class is an error."""

    def __init__(self, file: BinaryIO, storage: Callable[[Any], _Storage]):
        super().__init__(file)
        self._storage = storage

    def find_class(self, module: str, name: str) -> Any:
        """Resolve the three kinds of names that a state dictionary has."""
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return lambda storage, offset, shape, strides, *_: _Tensor(storage, offset, shape, strides)
        if module == "torch" and name in DTYPES:
            return DTYPES[name]
        raise pickle.UnpicklingError(f"{module}.{name} is no part of a state dictionary")

    def persistent_load(self, pid: Any) -> _Storage:
        """Resolve the key of a storage."""
        return self._storage(pid)


def read_state_dict(path: Path, key: str) -> dict[str, np.ndarray]:
    """Read the tensors below `key` of a saved dictionary: name → array."""
    read = _read_zip if zipfile.is_zipfile(path) else _read_legacy
    return {name: one.array() for name, one in read(path)[key].items()}


def _read_zip(path: Path) -> Any:
    with zipfile.ZipFile(path) as archive:
        root = archive.namelist()[0].partition("/")[0]

        def storage(pid: Any) -> _Storage:
            _, dtype, key, *_ = pid
            held = _Storage(dtype)
            held.numbers = np.frombuffer(archive.read(f"{root}/data/{key}"), dtype)
            return held

        return _Unpickler(io.BytesIO(archive.read(f"{root}/data.pkl")), storage).load()


def _read_legacy(path: Path) -> Any:
    storages: dict[str, _Storage] = {}

    def storage(pid: Any) -> _Storage:
        _, dtype, key, *_ = pid
        return storages.setdefault(key, _Storage(dtype))

    with path.open("rb") as file:
        for _ in range(LEGACY_HEAD):
            pickle.Unpickler(file).load()
        content = _Unpickler(file, storage).load()
        for key in _Unpickler(file, storage).load():
            held = storages[key]
            count = int.from_bytes(file.read(8), "little")
            held.numbers = np.frombuffer(file.read(count * held.dtype.itemsize), held.dtype)
    return content
