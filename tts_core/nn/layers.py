"""A network's layers, one at a time, with the operations of either side's framework."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from tts_core import models
from tts_core.nn.layer_order import APPLIED, Stage

Arrays = Mapping[str, Any]  # of the framework, by name


@dataclass(frozen=True)
class Framework:
    """A side's framework, in its `layerwise.py`.

    package: of the side.
    ops: its functions, of which layers use concatenate, stack, clip, tanh and zeros_like.
    nn: its modules.
    array: makes one of NumPy's.
    turned: a codec's arrays with channels last, (B, T, C); or back, to the side's own order.
    """

    package: str
    ops: Any
    nn: Any
    array: Callable[[np.ndarray], Any]
    turned: Callable[[Any], Any]


class Layers:
    """The layers of one network. Subclasses have a method for every kind of stage but APPLIED, with the
    layer's inputs and its index.
    """

    KIND: str  # kind of network, as in tts_core.models
    NETWORK: str | None = None  # its module and class in a side's package; None for the kind's own
    wide: Sequence[str] = ()  # arrays that are float32 between layers for any dtype

    def __init__(self, network: Any, framework: Framework):
        self.network, self.framework = network, framework
        self.ops, self.turned = framework.ops, framework.turned

    @classmethod
    def network_class(cls, package: str) -> Any:
        """Import the network's class from a side's package."""
        if cls.NETWORK is None:
            return models.network_class(package, cls.KIND)
        module, _, name = cls.NETWORK.partition(":")
        return getattr(importlib.import_module(f"{package}.{module}"), name)

    @classmethod
    def wide_in(cls, dtype: str) -> Sequence[str]:
        """Return the arrays that are float32 between layers in this dtype."""
        return cls.wide

    def run(self, stage: Stage, x: Arrays) -> Arrays:
        """Run a stage on its inputs."""
        if stage.kind != APPLIED:
            return getattr(self, stage.kind)(x, stage.index)
        [path], layer = stage.modules, self.network
        for name in path.split("."):
            layer = layer[int(name)] if name.isdigit() else getattr(layer, name)
        return {name: layer(x[name]) for name in stage.arrays}

    def module(self, name: str) -> ModuleType:
        """Import a module of the side, such as "layers.cache"."""
        return importlib.import_module(f"{self.framework.package}.{name}")
