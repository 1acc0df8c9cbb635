"""The parts of a model in the order in which they are compared; each model's own file lists them."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mlx_port.commands.verify.inputs import Given
from tts_core.nn.layer_order import Stage, State


@dataclass(frozen=True)
class Rung:
    """One run of a network, or of a half of it, from inputs to its last layer.

    part: as the report calls it.  kind: of network, as in tts_core.models.  layers: module and class
    that run its stages, the same on both sides.  state: makes what it reads.  keeps: the arrays that later
    rungs read.  targets: of an input, the codes that the logits foretell, negative where there is none.
    """

    part: str
    kind: str
    layers: str
    stages: list[Stage]
    state: Callable[[Given], State]
    keeps: tuple[str, ...] = ()
    targets: Callable[[State], np.ndarray] | None = None


def ladder(model: str, given: Given) -> list[Rung]:
    """The rungs of a model. Raises UsageError for a number of rows that it has no room for."""
    return importlib.import_module(f"mlx_port.commands.verify.{model}").ladder(given)
