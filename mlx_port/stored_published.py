"""Weights in another form than convert-weights gives its own: read through the maps of `converters`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np

from mlx_port.stored import Stored
from tts_core.files.json_object import read_json
from tts_core.shapes import mlx_axes

if TYPE_CHECKING:
    from converters.published import ModelPart, Published


class Mapped:
    """The tensors of a part under canonical names, in MLX's axis order and their stored dtype.

    part: as `converters` opens it.
    """

    quantization: Mapping[str, Any] | None = None

    def __init__(self, part: ModelPart):
        self.kind, self.part = part.kind, part

    def names(self) -> list[str]:
        """Names of all tensors."""
        return self.part.names()

    def read(self, names: Sequence[str]) -> dict[str, mx.array]:
        """Read tensors, one at a time."""
        return {name: self._read(name) for name in names}

    def _read(self, name: str) -> mx.array:
        values, axes = self.part.read(name), mlx_axes(self.part.shape(name))
        array = mx.array(np.ascontiguousarray(values.transpose(axes)) if axes else values)
        return array.astype(getattr(mx, self.part.stored_dtype(name)))


def stored_in(part: ModelPart) -> Stored | Mapped:
    """Return the reader of a part's tensors: as they are stored, or through its map."""
    if part.layout == "mlx":
        return Stored(part.kind, part.files, part.quantization)
    return Mapped(part)


def read_whole(weights: Stored | Mapped) -> dict[str, mx.array]:
    """Read all tensors of a part."""
    return weights.read(weights.names())


def open_copied(folder: Path, kind: str) -> ModelPart:
    """Open a part whose published files a converted folder keeps. folder: of the part."""
    from converters.published import open_published

    return open_published(folder, parts=(kind,), offline=True, flag="model").parts[kind]


def open_conversion(folder: Path, kinds: Sequence[str] | None) -> Published | None:
    """Open a folder that another program wrote with MLX; None for any other. kinds: None for all parts."""
    path = folder / "config.json"
    if not path.is_file() or "weights_layout" in read_json(path):
        return None
    from converters.published import is_conversion, open_published

    if not is_conversion(folder):
        return None
    found = open_published(folder, parts=kinds, offline=True, flag="model")
    found.check_fits()
    return found
