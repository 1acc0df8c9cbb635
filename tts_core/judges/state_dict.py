"""Read float32 tensors from a file of torch.save without PyTorch.

Only for contents whose hash was compared (tts_core.judges.wheels.content): a checkpoint from elsewhere goes
through converters.files.pickles, which bounds what it may cost. Still, every pickle is read by an unpickler
that knows no class but those of a state dictionary, so nothing of a file is run.
"""

from __future__ import annotations

import io
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, BinaryIO

import numpy as np

from tts_core.errors import CheckpointError

DTYPES = {"FloatStorage": np.dtype("<f4"), "LongStorage": np.dtype("<i8")}
# a legacy file begins with three pickles: these two, and the sizes of C's types
LEGACY_MAGIC, LEGACY_VERSION = 0x1950A86A20F9469CFC6C, 1001


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
    """Builds tensors and containers; any other class is an error. storage: None where none may occur."""

    def __init__(self, file: BinaryIO, storage: Callable[[Any], _Storage] | None = None):
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
        raise CheckpointError(f"refused: the pickle asks for {module}.{name}, which is code and not weights")

    def persistent_load(self, pid: Any) -> _Storage:
        """Resolve the key of a storage."""
        if self._storage is None:
            raise CheckpointError("refused: the pickle refers to a storage before the first one")
        return self._storage(pid)


def read_state_dict(content: bytes, key: str) -> dict[str, np.ndarray]:
    """Read the tensors below `key` of a saved dictionary: name → array.

    content: of the file.  Raises CheckpointError for a pickle that asks for other classes, or begins
    differently.
    """
    file = io.BytesIO(content)
    read = _read_zip if zipfile.is_zipfile(file) else _read_legacy
    file.seek(0)
    return {name: one.array() for name, one in read(file)[key].items()}


def _read_zip(file: BinaryIO) -> Any:
    with zipfile.ZipFile(file) as archive:
        root = archive.namelist()[0].partition("/")[0]

        def storage(pid: Any) -> _Storage:
            _, dtype, key, *_ = pid
            held = _Storage(dtype)
            held.numbers = np.frombuffer(archive.read(f"{root}/data/{key}"), dtype)
            return held

        return _Unpickler(io.BytesIO(archive.read(f"{root}/data.pkl")), storage).load()


def _read_legacy(file: BinaryIO) -> Any:
    storages: dict[str, _Storage] = {}

    def storage(pid: Any) -> _Storage:
        _, dtype, key, *_ = pid
        return storages.setdefault(key, _Storage(dtype))

    begins = [_Unpickler(file).load() for _ in range(2)]
    if begins != [LEGACY_MAGIC, LEGACY_VERSION]:
        raise CheckpointError("not a file of torch.save")
    _Unpickler(file).load()
    content = _Unpickler(file, storage).load()
    for key in _Unpickler(file).load():
        held = storages[key]
        count = int.from_bytes(file.read(8), "little")
        held.numbers = np.frombuffer(file.read(count * held.dtype.itemsize), held.dtype)
    return content
