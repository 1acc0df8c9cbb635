"""Tensors of a converted network as MLX reads them: lazily, and anew for each layer, so that none stays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import mlx.core as mx


class Stored:
    """The files of one converted network.

    kind: of network, as in tts_core.models.  quantization: as its config.json has it, None where
    nothing is quantised.
    """

    def __init__(self, kind: str, files: Sequence[Path], quantization: Mapping[str, Any] | None = None):
        self.kind, self.files, self.quantization = kind, list(files), quantization
        self._file_of = {name: file for file in self.files for name in self._load(file)}

    def names(self) -> list[str]:
        """Of all tensors as they are stored: scales and biases too."""
        return list(self._file_of)

    def read(self, names: Sequence[str]) -> dict[str, mx.array]:
        """These tensors; their numbers are read from the file when they are first used."""
        mx.clear_cache()  # what the layer before this one took
        opened = {file: self._load(file) for file in {self._file_of[name] for name in names}}
        return {name: opened[self._file_of[name]][name] for name in names}

    @staticmethod
    def _load(file: Path) -> dict[str, mx.array]:
        return cast(dict[str, mx.array], mx.load(str(file)))
