"""The order in which a network's layers run and the arrays between them, so that one can run at a time.

A stage reads the arrays it needs from a state, by name, and returns those it computes. The names are listed
with the stages: in a model's `layer_order.py`, in a codec's own file.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np

State = dict[str, np.ndarray]
APPLIED = "applied"  # kind of a stage that applies its only module to each of its arrays


@dataclass(frozen=True)
class Stage:
    """One layer of a network.

    kind: the method that runs it, or APPLIED.
    modules: canonical names of its parts.
    compared: report row → arrays that count as this row.
    codebook: if the stage chooses codes, the tensor with the codebook's entries, and the distance that
    selects them.
    """

    name: str
    kind: str
    modules: tuple[str, ...]
    compared: dict[str, tuple[str, ...]]
    index: int = 0
    codebook: tuple[str, Literal["directions", "points"]] | None = None

    def tensors(self, names: Iterable[str]) -> list[str]:
        """Select the names that belong to this stage."""
        heads = tuple(f"{module}." for module in self.modules)
        return [name for name in names if name.startswith(heads)]

    @property
    def arrays(self) -> list[str]:
        """Names of all compared arrays."""
        return [array for arrays in self.compared.values() for array in arrays]


def stage(kind: str, module: str, *arrays: str, beside: tuple[str, ...] = (), index: int = 0) -> Stage:
    """Build a stage with its module's name. arrays: compared ones.  beside: other modules that it needs."""
    name = module.removeprefix("model.")
    return Stage(name, kind, (module, *beside), {name: arrays}, index)


def stages(kind: str, module: str, count: int, *arrays: str) -> list[Stage]:
    """Build the stages of a list of layers."""
    return [stage(kind, f"{module}.{i}", *arrays, index=i) for i in range(count)]


def passes(rows: int) -> list[tuple[int, int]]:
    """List the calls in which a decoder layer reads its rows: half at once, then two, then one at a time."""
    first = max(1, rows // 2)
    second = min(rows, first + 2)
    spans = [(0, first), (first, second), *((row, row + 1) for row in range(second, rows))]
    return [span for span in spans if span[0] < span[1]]


def single_passes(rows: int) -> list[tuple[int, int]]:
    """List the calls for a ring cache: half of the rows at once, then one at a time."""
    first = max(1, rows // 2)
    return [(0, first), *((row, row + 1) for row in range(first, rows))]
