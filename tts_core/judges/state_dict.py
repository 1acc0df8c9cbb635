"""Read the tensors of a state dictionary that torch.save wrote, without PyTorch."""

from __future__ import annotations

import io

import numpy as np

from tts_core.files.bounded import BoundedReader
from tts_core.files.torch_file import read_torch_file

DTYPES = {"F32": np.dtype("<f4"), "I64": np.dtype("<i8")}


def read_state_dict(content: bytes, key: str) -> dict[str, np.ndarray]:
    """Read the tensors below `key` of a saved dictionary: name → array.

    content: of the file.  Raises CheckpointError for a pickle that asks for other classes, or begins
    differently.
    """
    found, tensors = read_torch_file(BoundedReader(io.BytesIO(content))), {}  # pyright: ignore[reportArgumentType]
    for name, tensor in found.content[key].items():
        storage, dtype = tensor.storage, DTYPES[tensor.storage.code]
        numbers = np.frombuffer(content, dtype, storage.count, found.begins[storage.key])
        strides = [dtype.itemsize * stride for stride in tensor.strides]
        tensors[name] = np.lib.stride_tricks.as_strided(
            numbers[tensor.offset :], tensor.shape, strides
        ).copy()
    return tensors
