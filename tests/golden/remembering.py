"""Sides that cache codec results.

The tests of both sides need the same results of torch, and most tests of the machinery change an expected
value, not an input.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tests.golden.dia_bench import DiaSide, Loader


@dataclass(frozen=True, eq=False)
class Remembering(DiaSide):
    """A side that runs the codec once per input."""

    known: dict[tuple, np.ndarray] = field(default_factory=dict)

    def _once(self, what: object, x: np.ndarray, compute: Callable[[], np.ndarray]) -> np.ndarray:
        key = (what, x.shape, x.dtype.str, x.tobytes())
        if key not in self.known:
            self.known[key] = compute()
        return self.known[key].copy()

    def conv(self, module: Callable[[Any], Any], x: np.ndarray) -> np.ndarray:
        return self._once(id(module), x, lambda: DiaSide.conv(self, module, x))

    def latents(self, codes: np.ndarray) -> np.ndarray:
        return self._once("latents", codes, lambda: DiaSide.latents(self, codes))

    def encode(self, samples: np.ndarray) -> np.ndarray:
        return self._once("encode", samples, lambda: DiaSide.encode(self, samples))

    def decode(self, codes: np.ndarray) -> np.ndarray:
        return self._once("decode", codes, lambda: DiaSide.decode(self, codes))


class RememberingLoader(Loader):
    """Loader of remembering sides, shared by all tests."""

    def _load(self, *given: Any) -> DiaSide:
        side = super()._load(*given)
        return self.remembering.setdefault(id(side), Remembering(**vars(side)))

    def __init__(self, folder: Path):
        super().__init__(folder)
        self.remembering: dict[int, Remembering] = {}
