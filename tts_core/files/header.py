"""Headers of safetensors files: every bound that a reader relies on, checked before a tensor is read."""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
class Stored:
    """The place of a tensor: `begin` and `end` are byte offsets in its file."""

    file: Path
    dtype: str  # safetensors name
    shape: tuple[int, ...]
    begin: int
    end: int


def read_header(path: Path) -> tuple[dict[str, Stored], dict[str, str]]:
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
        header = json.loads(raw.decode("utf-8"), object_pairs_hook=_without_duplicates)
        if not isinstance(header, dict):
            raise ValueError("it is not an object")
        metadata = header.pop("__metadata__", {})
        if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
            raise ValueError("__metadata__ is not a map of strings")
        stored = {name: _entry(name, fields, path, 8 + length) for name, fields in header.items()}
        _check_coverage(stored, 8 + length)
    except (ValueError, RecursionError) as fault:
        raise CheckpointError(f"{path}: corrupt safetensors header: {fault}; fetch the file again") from None
    end = max((tensor.end for tensor in stored.values()), default=8 + length)
    if end != size:
        state = "truncated" if end > size else "corrupt"
        raise CheckpointError(
            f"{path}: {state}: the header describes {end} bytes, the file has {size}; fetch it again"
        )
    return stored, metadata


def _read(file: Any, length: int) -> bytes:
    content = bytearray()
    while len(content) < length and (piece := file.read(length - len(content))):
        content += piece
    return bytes(content)


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        [(name, _)] = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"it has {name} twice")
    return found


def _entry(name: str, fields: object, path: Path, data: int) -> Stored:
    if not isinstance(fields, dict) or set(fields) != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"{name} does not have exactly dtype, shape and data_offsets")
    dtype, shape, offsets = fields["dtype"], fields["shape"], fields["data_offsets"]
    if not isinstance(dtype, str) or dtype not in ITEM_SIZES:
        raise ValueError(f"{name} has the unknown dtype {dtype!r:.40}")
    if isinstance(shape, list) and len(shape) > MOST_AXES:
        raise ValueError(f"{name} has {len(shape)} axes, at most {MOST_AXES} are supported")
    if not _are_sizes(shape) or not _are_sizes(offsets) or len(offsets) != 2:
        raise ValueError(
            f"{name} has shape {shape!r:.200} and offsets {offsets!r:.80}, expected lists of sizes"
        )
    begin, end = offsets
    if end - begin != math.prod(shape) * ITEM_SIZES[dtype]:
        raise ValueError(
            f"{name} takes {end - begin} bytes, its shape {shape} and dtype {dtype} require others"
        )
    if math.prod(size or 1 for size in shape) * ITEM_SIZES[dtype] >= 2**63:
        raise ValueError(f"{name} has shape {shape}, more than any memory")
    return Stored(path, dtype, tuple(shape), data + begin, data + end)


def _are_sizes(values: object) -> bool:
    return isinstance(values, list) and all(type(value) is int and 0 <= value < 2**63 for value in values)


def _check_coverage(stored: Mapping[str, Stored], data: int) -> None:
    """Raise ValueError unless the tensors follow each other without a hole or an overlap."""
    at = data
    for name, tensor in sorted(stored.items(), key=lambda item: (item[1].begin, item[1].end)):
        if tensor.begin != at:
            raise ValueError(f"{name} {'overlaps another tensor' if tensor.begin < at else 'follows a hole'}")
        at = tensor.end
