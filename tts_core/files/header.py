"""Headers of safetensors files: every bound that a reader relies on, checked before a tensor is read.

safetensors checks the header's form, and that its tensors account for every byte of the file. Here are the
offsets, which it does not tell, and bounds that it lacks: sizes of the header and of a tensor, axes, names
that come twice, and the number formats that this project reads.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from tts_core.errors import CheckpointError
from tts_core.files.regular import opened

LARGEST_HEADER = 16 << 20  # bytes; Python takes up to 25 times as much for it
MOST_AXES = 32

ITEM_SIZES = {
    **dict.fromkeys(("F64", "I64", "U64"), 8),
    **dict.fromkeys(("F32", "I32", "U32"), 4),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 2),
    **dict.fromkeys(("I8", "U8", "BOOL", "F8_E4M3", "F8_E5M2"), 1),
}  # safetensors name → bytes


@dataclass(frozen=True)
class TensorRange:
    """The place of a tensor: `begin` and `end` are byte offsets in its file."""

    file: Path
    dtype: str  # safetensors name
    shape: tuple[int, ...]
    begin: int
    end: int


def read_header(path: Path) -> tuple[dict[str, TensorRange], dict[str, str]]:
    """Read (tensors, metadata) of a safetensors file; they account for every byte of it.

    Raises CheckpointError for a file that is truncated, longer than its header says, or whose tensors
    overlap, leave a hole, repeat a name, have more than MOST_AXES axes or a size unlike their shape's.
    """
    with opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        start = file.read(8)
        length = int.from_bytes(start, "little")
        if len(start) < 8 or length < 2:
            raise CheckpointError(
                f"{path}: not a safetensors file, or its first bytes are lost; fetch it again"
            )
        if 8 + length > size:
            raise CheckpointError(
                f"{path}: not a safetensors file, or truncated: its header takes {8 + length} bytes, "
                f"the file has {size}; fetch it again"
            )
        if length > LARGEST_HEADER:
            raise CheckpointError(
                f"{path}: its header takes {length} bytes; at most {LARGEST_HEADER} are read"
            )
        raw = _read(file, length)
    try:
        with safe_open(path, "numpy", backend="pread") as checked:  # mapped files must not shrink
            stored = _stored(checked, path, 8 + length)
            metadata = checked.metadata() or {}
        json.loads(raw, object_pairs_hook=_check_distinct)
    except (SafetensorError, ValueError) as fault:
        reason = str(fault).removeprefix("Error while deserializing header: ")
        if "not fully covered" in reason:
            reason = f"truncated, or longer than its header says: the file has {size} bytes"
        else:
            reason = f"corrupt safetensors header: {reason:.300}"
        raise CheckpointError(f"{path}: {reason}; fetch it again") from None
    return stored, metadata


def _stored(checked: Any, path: Path, data: int) -> dict[str, TensorRange]:
    """Place the tensors of a checked file, which follow each other without a hole. data: their first byte."""
    stored, at = {}, data
    for name in checked.offset_keys():
        entry = checked.get_slice(name)
        dtype, shape = entry.get_dtype(), entry.get_shape()
        if dtype not in ITEM_SIZES:
            raise ValueError(f"{name} has the dtype {dtype}, which is not read here")
        if len(shape) > MOST_AXES:
            raise ValueError(f"{name} has {len(shape)} axes, at most {MOST_AXES} are supported")
        if math.prod(size or 1 for size in shape) * ITEM_SIZES[dtype] >= 2**63:
            raise ValueError(f"{name} has shape {shape}, more than any memory")
        end = at + math.prod(shape) * ITEM_SIZES[dtype]
        stored[name] = TensorRange(path, dtype, tuple(shape), at, end)
        at = end
    return stored


def _read(file: Any, length: int) -> bytes:
    content = bytearray()
    while len(content) < length and (piece := file.read(length - len(content))):
        content += piece
    return bytes(content)


def _check_distinct(pairs: list[tuple[str, Any]]) -> None:
    if len(dict(pairs)) != len(pairs):
        [(name, _)] = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"it has {name} twice")
