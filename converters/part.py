"""One network of a checkpoint: configuration, strict plan, and tensors read one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from converters.files.blocks import PIECE, ScratchMemory
from converters.files.dtypes import FLOAT_NAMES, FLOATS
from converters.files.hub import Located
from converters.files.readers import Checkpoint
from converters.maps import mlx
from converters.maps.layouts import Found
from converters.maps.origin import described, is_conversion
from converters.maps.table import layouts
from converters.rules.assignment import Move, assigned, dropped
from converters.rules.transforms import SAME
from tts_core import models
from tts_core.config import without_envelope
from tts_core.errors import CheckpointError
from tts_core.files.regular import Identity, check_unchanged
from tts_core.shapes import mlx_axes


@dataclass(frozen=True)
class ModelPart:
    """One network of a checkpoint, planned and ready to be read under canonical names."""

    kind: str  # as in tts_core.models
    layout: str  # a key of `layouts()`, or "mlx" for a converted folder
    config: Any  # of its kind of network
    dtype: str  # of most of its numbers in the files
    origin: Located
    checkpoint: Checkpoint = field(repr=False)
    moves: Mapping[str, Move] = field(repr=False)
    dropped: Mapping[str, str] = field(repr=False)  # source name → why
    quantization: Mapping[str, Any] | None = None  # as config.json has it
    documents: Mapping[str, str] = field(default_factory=dict, repr=False)  # name → text
    beside: Mapping[Path, Identity] = field(default_factory=dict, repr=False)  # other files that were read
    # config.json as published, of kinds whose converted folders keep it; None in folders of older versions
    published: Mapping[str, Any] | None = field(default=None, repr=False)

    @property
    def folder(self) -> str:
        """Folder of the part inside a converted model's."""
        known = models.network(self.kind)
        return known.folder if self.published is not None else known.older_folder or known.folder

    def as_published(self) -> ModelPart:
        """Return the part with all tensors of its files as they are, if a converted folder keeps them."""
        if not models.network(self.kind).is_copied or self.published is None:
            return self
        shapes = self.checkpoint.shapes
        moves = {name: Move((name,), name, SAME, shape) for name, shape in shapes.items()}
        return replace(self, moves=moves, dropped={})

    def mlx_axes(self, name: str) -> tuple[int, ...] | None:
        """Return the order of a canonical tensor's axes in a converted folder; None if it is the same."""
        known = models.network(self.kind)
        if known.is_copied and self.published is not None:
            return None
        return mlx_axes(self.shape(name))

    def stored_dtype(self, name: str) -> str:
        """Return the dtype of a canonical tensor's numbers in the files; of scales if it is quantized."""
        return FLOAT_NAMES.get(self.checkpoint.dtypes[self.moves[name].sources[-1]], "float32")

    @property
    def files(self) -> list[Path]:
        """Files that contain its tensors."""
        return list(self.checkpoint.files)

    def check_unchanged(self) -> None:
        """Raise CheckpointError if a file is not the one that was opened."""
        self.checkpoint.check_unchanged()
        for path, expected in self.beside.items():
            check_unchanged(path, expected)

    def names(self) -> list[str]:
        """List the canonical names in the network's order."""
        return list(self.moves)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a canonical tensor in PyTorch's axis order."""
        return self.moves[name].shape

    def stays_float32(self, name: str) -> bool:
        """Return True if a tensor stays float32 for every requested dtype."""
        return models.network(self.kind).stays_float32(name)

    def is_copied(self, name: str) -> bool:
        """Return True if a canonical tensor is one source's numbers in their order."""
        return self.moves[name].how is SAME

    def blocks(self, name: str) -> Iterator[np.ndarray]:
        """Read a copied tensor's numbers as float32, some at a time; each is valid until the next."""
        [source] = self.moves[name].sources
        return self.checkpoint.blocks(source, PIECE)

    def read(self, name: str, memory: ScratchMemory | None = None) -> np.ndarray:
        """Read one canonical tensor: float32, C-contiguous, PyTorch's axis order, dequantized.

        memory: where the tensor may be put.
        """
        move = self.moves[name]
        if memory is not None and move.how.gradual is not None:
            [source], gradual = move.sources, move.how.gradual
            tensor = memory.array(move.shape)
            gradual.fill(tensor, self.checkpoint.blocks(source, gradual.size))
            return tensor
        sources = [self.checkpoint.read(source) for source in move.sources]
        try:
            return np.ascontiguousarray(move.how.apply(*sources))
        except CheckpointError as fault:
            raise CheckpointError(f"{self.files[0]}: {' and '.join(move.sources)}: {fault}") from None


class MisfitError(CheckpointError):
    """A recognized model whose tensors or configuration do not fit; no other file is tried instead."""


def open_part(kind: str, layout: str, found: Found, location: Located) -> ModelPart:
    """Plan a recognized checkpoint completely."""
    checkpoint, folder, file = found.checkpoint, found.folder, found.checkpoint.files[0]
    targets_of = models.network(kind).parameter_shapes
    try:
        if layout == "mlx":
            config = found.json("config.json")
            read = models.network(kind).read_converted(without_envelope(config))
            read = mlx.with_hints(kind, read, found.hints)
            targets = targets_of(read)
            stated = config.get("quantization") or config.get("quantization_config")
            quantization = {"mode": "affine", **stated} if stated else None
            rules = mlx.rules(targets, checkpoint.shapes.keys(), quantization)
            is_ours = "weights_layout" in config
            dtype = FLOAT_NAMES[FLOATS[config["dtype"]]] if is_ours else _main_dtype(checkpoint)
            documents = {name: found.text(name) for name in models.network(kind).documents}
        else:
            read = layouts()[layout].read(found)
            targets, quantization = targets_of(read), None
            rules = layouts()[layout].rules(read)
            dtype = _main_dtype(checkpoint)
            documents = layouts()[layout].documents(found)
        documents |= {name: found.text(name) for name in models.network(kind).optional_in(folder)}
        moves = assigned(rules, checkpoint.shapes, targets, what=str(file))
    except CheckpointError as fault:
        message = str(fault)
        if is_conversion(found):
            what = described(found, models.network(kind).title)
            message = f"{folder}: {what}: {message.removeprefix(f'{file}: ')}"
        raise MisfitError(message if str(folder) in message else f"{folder}: {message}") from None
    except (TypeError, KeyError, AttributeError, ValueError, ArithmeticError) as fault:
        raise MisfitError(
            f"{folder}: {models.network(kind).title}'s configuration is not understood: {fault!r}"
        ) from fault
    _check_types(checkpoint, moves, quantized=quantization is not None)
    own = found.json("config.json")
    stays = models.network(kind).published_type is not None and own.get("model_type") != kind
    return ModelPart(
        kind,
        layout,
        read,
        dtype,
        location,
        checkpoint,
        {move.target: move for move in moves},
        dropped(rules, checkpoint.shapes) | _entries_left(checkpoint, layout),
        quantization,
        documents,
        found.beside,
        own if stays else None,
    )


def _entries_left(checkpoint: Checkpoint, layout: str) -> dict[str, str]:
    """Map the entries of a pickle that the layout does not use to the reason."""
    if layout == "mlx":
        return {}
    known = layouts()[layout]
    left = [name for name in checkpoint.entries if name not in known.entries]
    return {name: known.unread.get(name, "no part of the model") for name in left}


def _main_dtype(checkpoint: Checkpoint) -> str:
    """Find the dtype of most numbers; float32 for wider types and integers."""
    sizes = Counter[str]()
    for name, shape in checkpoint.shapes.items():
        if checkpoint.dtypes[name] != "U32":  # words of a quantized layer
            sizes[checkpoint.dtypes[name]] += prod(shape)
    dtype = FLOAT_NAMES.get(max(sizes, key=sizes.__getitem__))
    return dtype if dtype in ("bfloat16", "float16") else "float32"


def _check_types(checkpoint: Checkpoint, moves: Sequence[Move], *, quantized: bool) -> None:
    strange = [
        f"{name} ({checkpoint.dtypes[name] or 'unknown type'})"
        for move in moves
        for name in move.sources
        if checkpoint.dtypes[name] not in FLOAT_NAMES and not (quantized and len(move.sources) > 1)
    ]
    if strange:
        raise MisfitError(f"{checkpoint.files[0]}: not floating point: {', '.join(strange[:20])}")
