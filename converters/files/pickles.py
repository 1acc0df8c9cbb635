"""Reader of torch pickles: tensors by name, in place in the file; other contents as plain data.

No framework is needed, and nothing of a file is run: tts_core/files/unpickle.py builds plain values only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from converters.files.plain import Plain
from converters.files.readers import Checkpoint
from tts_core.errors import CheckpointError
from tts_core.files.bounded import BoundedReader
from tts_core.files.header import ITEM_SIZES, TensorRange
from tts_core.files.regular import identity, opened
from tts_core.files.torch_file import read_torch_file
from tts_core.files.unpickle import Opaque, Tensor

PICKLES = (".pth", ".pt", ".bin", ".th")
SHARING = 4  # times the file's size that its tensors may take where they share or repeat storages
SPARE = 64 << 20  # bytes that they may take in any case
_INSIDE = ("state_dict", "model", "model_state")  # entries of a pickled dict that may contain its tensors


class TorchCheckpoint(Checkpoint):
    """One pickle: a dict of tensors, or a dict with an entry that is one.

    `entries` names the other entries of the dict, `metadata` contains them as plain data, and those of an
    entry "metadata" as well. A file with OmegaConf settings is a tree: the tensors' names are their paths,
    `2.model_state.conv_codec.bias`, and `metadata` is everything else.
    """

    def __init__(self, file: Path):
        super().__init__({file: identity(file)})
        try:
            with opened(file) as raw, BoundedReader(raw) as buffered:
                found = read_torch_file(buffered)
            take_apart = _tree if found.has_nodes else _flat
            tensors, self.metadata, self.entries = take_apart(found.content)
            _check_sizes(tensors, file.stat().st_size)
        except CheckpointError as fault:
            said = str(fault).removeprefix(f"{file}: ")
            raise CheckpointError(f"{file}: {said}") from None
        for name, tensor in tensors.items():
            self.add(name, _range(file, found.begins[tensor.storage.key], tensor), tensor.strides)
        self.check_unchanged()


def _range(file: Path, begin: int, tensor: Tensor) -> TensorRange:
    """Find the bytes that a tensor spans. begin: first byte of its storage."""
    code, shape = tensor.storage.code, tensor.shape
    steps = zip(shape, tensor.strides, strict=True)
    span = 0 if 0 in shape else 1 + sum((size - 1) * stride for size, stride in steps)
    begin += tensor.offset * ITEM_SIZES[code]
    return TensorRange(file, code, shape, begin, begin + span * ITEM_SIZES[code])


def _tree(content: Any) -> tuple[dict[str, Tensor], dict[Any, Any], tuple[str, ...]]:
    """Take apart a file with OmegaConf settings: tensors, other contents, and no entries."""
    tensors: dict[str, Tensor] = {}

    def take(path: str, tensor: Tensor) -> None:
        if path in tensors:
            raise CheckpointError(f"refused: two tensors are called {path}")
        tensors[path] = tensor

    metadata = Plain(take).of(content)
    if not isinstance(metadata, dict) or not tensors:
        raise CheckpointError("contains no dict of tensors; nothing of it was run")
    return tensors, metadata, ()


def _flat(content: Any) -> tuple[dict[str, Tensor], dict[Any, Any], tuple[str, ...]]:
    """Take apart a dict of tensors, or one that contains it: tensors, other contents, their names."""
    metadata: dict[Any, Any] = {}
    entries: tuple[str, ...] = ()
    held = content if isinstance(content, dict) else {}
    inside = next((name for name in _INSIDE if isinstance(held.get(name), dict)), None)
    if inside is not None:
        others = {name: value for name, value in content.items() if name != inside}
        metadata = {str(name): value for name, value in Plain().of(others).items()}
        entries = tuple(metadata)
        nested = metadata.get("metadata")
        metadata |= nested if isinstance(nested, Mapping) else {}
        content = content[inside]
    if not isinstance(content, dict) or not content:
        raise CheckpointError(f"contains a {type(content).__name__}, expected a dict of tensors")
    for name, value in content.items():
        kind = value.kind if isinstance(value, Opaque) else type(value).__name__
        if not isinstance(name, str) or kind != "Tensor":
            raise CheckpointError(f"{name!r:.80} is a {kind}, expected named tensors only")
        if isinstance(value, Opaque):
            raise CheckpointError(f"{name} is not a plain dense tensor")
    return dict(content), metadata, entries


def _check_sizes(tensors: Mapping[str, Tensor], size: int) -> None:
    """Raise CheckpointError for tensors that are together much larger than a file of `size` bytes."""
    sizes = {
        name: math.prod(tensor.shape) * ITEM_SIZES[tensor.storage.code] for name, tensor in tensors.items()
    }
    total = sum(sizes.values())
    if total > max(SHARING * size, SPARE):
        largest = max(sizes, key=sizes.__getitem__)
        raise CheckpointError(
            f"refused: its tensors take {total} bytes, the file {size}: {largest:.80} and others are "
            "expanded or share storages; save clones of them"
        )
