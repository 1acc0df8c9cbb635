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
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO

import numpy as np

from tts_core.errors import CheckpointError

DTYPES = {"FloatStorage": np.dtype("<f4"), "LongStorage": np.dtype("<i8")}
# a legacy file begins with three pickles: these two, and the sizes of C's types
LEGACY_MAGIC, LEGACY_VERSION = 0x1950A86A20F9469CFC6C, 1001


def _tensor(storage: np.ndarray, offset: int, shape: Any, strides: Sequence[int], *_: Any) -> np.ndarray:
    """View a part of a storage, whose numbers may come later."""
    size = storage.itemsize
    return np.lib.stride_tricks.as_strided(storage[offset:], shape, [size * stride for stride in strides])


class _Unpickler(pickle.Unpickler):
    """Builds tensors and containers; any other class is an error. storage: None where none may occur."""

    def __init__(self, file: BinaryIO, storage: Callable[[Any], np.ndarray] | None = None):
        super().__init__(file)
        self._storage = storage

    def find_class(self, module: str, name: str) -> Any:
        """Resolve the three kinds of names that a state dictionary has."""
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _tensor
        if module == "torch" and name in DTYPES:
            return DTYPES[name]
        raise CheckpointError(f"refused: the pickle asks for {module}.{name}, which is code and not weights")

    def persistent_load(self, pid: Any) -> np.ndarray:
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
    return {name: one.copy() for name, one in read(file)[key].items()}


def _read_zip(file: BinaryIO) -> Any:
    with zipfile.ZipFile(file) as archive:
        root = archive.namelist()[0].partition("/")[0]

        def storage(pid: Any) -> np.ndarray:
            _, dtype, key, *_ = pid
            return np.frombuffer(archive.read(f"{root}/data/{key}"), dtype)

        return _Unpickler(io.BytesIO(archive.read(f"{root}/data.pkl")), storage).load()


def _read_legacy(file: BinaryIO) -> Any:
    storages: dict[str, np.ndarray] = {}  # their numbers come after the pickles

    def storage(pid: Any) -> np.ndarray:
        _, dtype, key, _, count, *_ = pid
        return storages.setdefault(key, np.zeros(count, dtype))

    begins = [_Unpickler(file).load() for _ in range(2)]
    if begins != [LEGACY_MAGIC, LEGACY_VERSION]:
        raise CheckpointError("not a file of torch.save")
    _Unpickler(file).load()
    content = _Unpickler(file, storage).load()
    for key in _Unpickler(file).load():
        numbers = storages[key]
        file.read(8)  # their count, as in the pickle
        numbers[:] = np.frombuffer(file.read(numbers.nbytes), numbers.dtype)
    return content
