"""Random weights of a small network, with the interface of a checkpoint's part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

Config = TypeVar("Config")


@dataclass(frozen=True)
class Weights(Generic[Config]):
    """A network's tensors under canonical names, in PyTorch's axis order."""

    config: Config
    tensors: dict[str, np.ndarray]

    def names(self) -> list[str]:
        return list(self.tensors)

    def read(self, name: str) -> np.ndarray:
        return self.tensors[name].copy()
