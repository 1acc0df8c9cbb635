"""Outputs of a network's modules while it runs, in any framework whose modules are called objects."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mlx_port.commands.verify.measure import LayerRow, measure
from tts_core.errors import UsageError
from tts_core.nn.probe import METHODS, Framework, Probe

Results = Mapping[str, Any]
Values = dict[str, list[np.ndarray]]  # by module or result, one a call


@dataclass(frozen=True)
class Side:
    """A network that is watched while it runs.

    run: runs it. Returns results by name.
    modules: by our names, of modules or of their methods.
    transposed: those names whose outputs are (B, T, C) here and (B, C, T) in the oracle's network.
    """

    run: Callable[[], Results]
    framework: Framework
    modules: Mapping[str, Any]
    transposed: Collection[str] = ()


def side_of(
    probe: Probe,
    network: Any,
    framework: Framework,
    names: Sequence[str] = (),
    transposed: Sequence[str] = (),
) -> Side:
    """Build a side of a probe. names: of modules to watch; empty in a network of torch takes the probe's."""
    modules = {name: find_module(network, name) for name in names or probe.rows_in(network)}
    return Side(lambda: probe.run(network, framework), framework, modules, transposed)


@dataclass
class Trace:
    """Values of a run. inputs: of methods that encode."""

    outputs: Values = field(default_factory=dict)
    inputs: Values = field(default_factory=dict)
    results: Values = field(default_factory=dict)


def trace(
    side: Side, truth: Mapping[str, list[np.ndarray]] | None = None, progress: Callable[[str], object] = str
) -> Trace:
    """Run a network. truth: outputs that it goes on with instead of its own, so that errors do not add up."""
    outputs = Outputs(side.framework, truth, side.transposed, progress)
    with watched(side.modules, outputs):
        results = side.run()
    made = {
        name: [
            side.framework.host(item) for item in (result if isinstance(result, list | tuple) else [result])
        ]
        for name, result in results.items()
    }
    return Trace(outputs.by_module, outputs.inputs, made)


def compare_outputs(
    part: str, layer: str, dtype: str, sides: Sequence[list[np.ndarray]], *, judged: bool = True
) -> LayerRow:
    """Measure the calls of the oracle, torch and the port; other shapes or counts are an infinite error."""
    truth, torch, port = sides
    shapes = [[item.shape for item in side] for side in (port, truth)]
    if shapes[0] == shapes[1]:
        return measure(part, layer, dtype, truth, torch, port, judged)
    theirs, ours = (" ".join(str(list(shape)) for shape in dict.fromkeys(side)) or "none" for side in shapes)
    if theirs == ours:
        theirs, ours = f"{len(shapes[0])} calls", f"{len(shapes[1])}"
    scale = max((float(np.abs(item).max(initial=0)) for item in truth), default=0.0)
    return LayerRow(part, f"{layer}: {theirs} instead of {ours}", dtype, np.inf, 0.0, scale, 0.0, -np.inf)


@contextmanager
def watched(modules: Mapping[str, Any], outputs: Callable[..., Any]) -> Iterator[None]:
    """Pass name, output and arguments of each call to `outputs`, whose result replaces the output.

    modules: by name; of a name that ends with one of METHODS, this method is watched.
    """
    plain = [(module, type(module)) for module in modules.values()]
    try:
        for name, module in modules.items():
            object.__setattr__(module, "__class__", _watched(type(module), name, outputs))
        yield
    finally:
        for module, own in plain:
            object.__setattr__(module, "__class__", own)


class Outputs:
    """Outputs by module, in order of their calls.

    truth: outputs that the network goes on with instead of its own.
    transposed: modules whose axes are (B, T, C) here and (B, C, T) in `truth`.
    """

    def __init__(
        self,
        framework: Framework,
        truth: Mapping[str, list[np.ndarray]] | None = None,
        transposed: Collection[str] = (),
        progress: Callable[[str], object] = str,
    ):
        self.framework, self.truth, self.transposed = framework, truth or {}, transposed
        self.progress = progress
        self.by_module: Values = {}
        self.inputs: Values = {}

    def __call__(self, name: str, output: Any, given: Sequence[Any] = ()) -> Any:
        """Keep an output; of several, the first. Returns what the network goes on with."""
        self.progress(name)
        several = isinstance(output, tuple | list)
        value = output[0] if several else output
        own = self._transposed(name, self.framework.host(value))
        outputs = self.by_module.setdefault(name, [])
        outputs.append(own)
        if name.endswith(".encode"):
            self.inputs.setdefault(name, []).append(self.framework.host(given[0]))
        true = self.truth.get(name, [])[len(outputs) - 1 : len(outputs)]
        if not true or true[0].shape != own.shape:
            return output
        value = self.framework.array(np.ascontiguousarray(self._transposed(name, true[0])), value)
        return type(output)((value, *output[1:])) if several else value

    def _transposed(self, name: str, value: np.ndarray) -> np.ndarray:
        return value.swapaxes(1, 2) if name in self.transposed else value


def find_module(network: Any, path: str) -> Any:
    """Find a module, or that of a method of METHODS. Raises UsageError where there is none."""
    *names, last = path.split(".")
    for name in names if last in METHODS else (*names, last):
        try:
            network = network[int(name)] if name.isdigit() else getattr(network, name)
        except (AttributeError, IndexError, KeyError, TypeError):
            raise UsageError(f"--with: names: {path}: the port has no such module") from None
    return network


def _watched(own: type, name: str, outputs: Callable[..., Any]) -> type:
    last = name.rpartition(".")[2]
    method = last if last in METHODS else "__call__"

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return outputs(name, getattr(own, method)(self, *args, **kwargs), args)

    return type(own.__name__, (own,), {method: call})
