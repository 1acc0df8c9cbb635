"""Comparison of another program's port with the original, on a published checkpoint that both can load.

A port is described by an adapter, one Python file a model, of which this module reads (`Port`):

    distribution  the program's package; the report names its version
    load          loads the port's model from a folder; its arrays must be float32
    names         by run: a regular expression of our modules → the port's name, with its groups as in re.sub
    turned        those expressions whose outputs are (B, T, C) in the port and (B, C, T) in torch_ref
    calls         by run: runs the port on the run's inputs, NumPy's arrays as MLX's; returns results by name

Runs, their inputs and the names of their results are in tts_core/<model>/probes.py; a run without a call is
not compared, one may have several, named "dia, ..". `examples/ports/mlx_audio` has two adapters.

Each run is made twice. First every named module hands on torch's float64 output instead of its own, so that
an error shows only where it arises, in the module or in what lies between it and those before; then as it
is, for the rows 'whole network'. The bound is that of measure.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, Protocol, cast

import mlx.core as mx
import numpy as np

from mlx_port.commands.verify.measure import FACTOR, FLOOR, LayerRow
from mlx_port.commands.verify.report import finite
from mlx_port.commands.verify.watch import Results, Side, Trace, compare_outputs, find_module, trace
from mlx_port.watch import framework as mlx_in
from tts_core.errors import NotFoundError, UsageError
from tts_core.nn.probe import Framework, Probe
from tts_core.printable import counted

FOLDER = Path(__file__).parents[3] / "examples/ports"


class Port(Protocol):
    """Adapter of a port; attributes as in the module's docstring."""

    distribution: str
    names: Mapping[str, Mapping[str, str]]
    turned: Collection[str]
    calls: Mapping[str, Callable[[Any, Mapping[str, Any]], Results]]

    def load(self, folder: Path, codec: Path | None) -> Any:
        """Load the model. codec: folder of the codec, if it was given."""
        ...


@dataclass
class PortReport:
    """Result of comparing a port. rows: by run in `part`."""

    folder: str
    port: str  # with its version
    environment: Mapping[str, str]
    rows: list[LayerRow] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """True if no row is beyond its bound."""
        return all(row.passed for row in self.rows)

    def to_dict(self) -> dict[str, Any]:
        """Convert to JSON-serializable values; values that are not finite become null."""
        rows = [asdict(row) | {"passed": row.passed} for row in self.rows]
        return finite(asdict(self) | {"passed": self.passed, "rows": rows})

    def lines(self, *, verbose: bool) -> Iterator[str]:
        """Format as Markdown: a table of the rows beyond the bound, or of all, then a line for each run."""
        yield f"{self.folder}: {self.port} compared with torch_ref in float64"
        yield ", ".join(f"{name} {value}" for name, value in self.environment.items())
        yield f"Bound: err(port) <= {FACTOR} err(torch float32) + {FLOOR} eps scale."
        shown = [row for row in self.rows if verbose or not row.passed]
        if shown:
            yield from ("", "| run | layer | error | bound | scale | |", "|---|---|--:|--:|--:|---|")
        for row in shown:
            verdict = "ok" if row.passed else "differs"
            numbers = f"{row.error:.2e} | {row.bound:.2e} | {row.scale:.2e}"
            yield f"| {row.part} | {row.layer} | {numbers} | {verdict} |"
        yield ""
        for part in dict.fromkeys(row.part for row in self.rows):
            rows = [row for row in self.rows if row.part == part]
            beyond = sum(not row.passed for row in rows)
            yield f"{part}: {counted(len(rows), 'row')}, {beyond or 'none'} beyond the bound"
        yield "PASS" if self.passed else "FAIL"


def open_port(given: str, model: str) -> Port:
    """Import an adapter. given: a file, or the name of a folder in examples/ports with a file for each model.

    Raises NotFoundError for an unknown one, UsageError for one that lacks an attribute.
    """
    file = Path(given).expanduser()
    if file.suffix != ".py":
        file = FOLDER / given.replace("-", "_") / f"{model}.py"
    if not file.is_file():
        known = sorted(f"{path.parent.name}, {path.stem}" for path in FOLDER.glob("*/*.py"))
        raise NotFoundError(
            f"--with: {given}: no adapter for {model}; give the path of its file, or one of the "
            f"repository's examples/ports ({'; '.join(known) or 'not installed here'})"
        )
    spec = spec_from_file_location(f"port_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    adapter = module_from_spec(spec)
    try:
        spec.loader.exec_module(adapter)
    except ModuleNotFoundError as error:
        raise NotFoundError(f"--with: {given}: {error.name} is not installed") from None
    missing = [
        name for name in ("distribution", "load", "names", "turned", "calls") if not hasattr(adapter, name)
    ]
    if missing:
        raise UsageError(
            f"--with: {file}: {', '.join(missing)} missing; see mlx_port/commands/verify/ports.py"
        )
    return cast(Port, adapter)


def named_version(port: Port) -> str:
    """Return the port's package and its version, if it is an installed one."""
    try:
        return f"{port.distribution} {version(port.distribution)}"
    except PackageNotFoundError:
        return port.distribution


def compare(probe: Probe, port: Port, model: Any, oracle: Any, yardstick: Any) -> list[LayerRow]:
    """Compare a port's run.

    model: what the adapter loaded.  oracle, yardstick: networks of torch_ref in float64 and float32.
    """
    from torch_ref.watch import framework as torch_in

    call, torch = port.calls[probe.name], (torch_in("float64"), torch_in("float32"))
    given = {name: mx.array(v) if isinstance(v, np.ndarray) else v for name, v in probe.inputs.items()}
    names = list(_pairs(port.names.get(probe.name, {}), oracle))
    transposed = [ours for pattern, ours, _ in names if pattern in port.turned]

    def ours(network: Any, framework: Framework) -> Side:
        modules = {name: find_module(network, name) for _, name, _ in names}
        return Side(lambda: probe.run(network, framework), framework, modules)

    true, yard = ours(oracle, torch[0]), ours(yardstick, torch[1])
    truth = trace(true)
    unused = {pattern for pattern, _, _ in names} - {p for p, name, _ in names if name in truth.outputs}
    unused |= port.names.get(probe.name, {}).keys() - {pattern for pattern, _, _ in names}
    if unused:
        raise UsageError(
            f"--with: names: {probe.name}: no module of ours runs as {', '.join(sorted(unused))}"
        )
    modules = {name: find_module(model, path) for _, name, path in names}
    theirs = Side(lambda: call(model, given), mlx_in("float32"), modules, transposed)
    fed = [truth, trace(yard, truth.outputs), trace(theirs, truth.outputs)]
    whole = [truth, trace(yard), trace(theirs)]
    rows = [
        compare_outputs(probe.name, name, "float32", [side.outputs.get(name, []) for side in fed])
        for name in truth.outputs
    ]
    for title, runs in (("{}", fed), ("whole network, {}", whole)):
        for name in dict.fromkeys([*truth.results, *runs[2].results]):
            sides = [_result(run, name) for run in runs[:2]] + [runs[2].results.get(name, [])]
            rows.append(compare_outputs(probe.name, title.format(name), "float32", sides))
    return rows


def _result(run: Trace, name: str) -> list[np.ndarray]:
    """Find a result of ours; a port may return it in several forms, named "samples after ..."."""
    return run.results.get(name, run.results.get(name.partition(" ")[0], []))


def _pairs(names: Mapping[str, str], network: Any) -> Iterator[tuple[str, str, str]]:
    """Yield pattern, our module and the port's."""
    modules: Sequence[str] = [name for name, _ in network.named_modules()]
    for pattern, theirs in names.items():
        for found in filter(None, map(re.compile(pattern).fullmatch, modules)):
            yield pattern, found.string, found.expand(theirs)
