"""Run of both sides one after the other, each module on the oracle's values."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mlx_port.commands.verify.conversion import compare_tensors, teacher_forced
from mlx_port.commands.verify.measure import Choices, compare_choices, distances
from mlx_port.commands.verify.report import Report
from mlx_port.commands.verify.watch import Side, Trace, Values, compare_outputs, side_of, trace
from tts_core import models
from tts_core.errors import CheckpointError
from tts_core.nn.probe import Framework, InputSources, Probe, probes

if TYPE_CHECKING:
    from converters.published import ModelPart, Published

Build = Callable[[Probe, "ModelPart", str], tuple[Any, Framework]]  # a network of a side in a dtype
Progress = Callable[[str], object]

END = "whole network"


def verify(
    source: Published,
    destination: Published,
    reference: Build,
    port: Build,
    report: Report,
    *,
    progress: Progress = lambda _: None,
) -> None:
    """Compare a converted model with its source; results are added to `report`, whose settings are used.

    reference, port: build networks of torch and of MLX.
    Raises CheckpointError if the two are not the same network, UsageError for values out of range.
    """
    parts = {kind: (part, destination.parts[kind]) for kind, part in source.parts.items()}
    for pair in parts.values():
        _check_shapes(*pair)
    for pair in parts.values():
        report.differences += _differences(*pair)
    given = InputSources(
        {kind: part.config for kind, part in source.parts.items()},
        {kind: part.documents for kind, part in source.parts.items()},
        report.grid_rows,
        report.seconds,
        report.seed,
    )
    listed = probes(str(destination.model), given)
    groups = {probe.kind: probe.groups for probe in listed}
    for kind, pair in parts.items():
        progress(f"tensors of {models.network(kind).title}")
        classes, faults = compare_tensors(_title(kind), *pair, groups.get(kind, {}))
        report.tensors += classes
        report.faults += faults
    for probe in listed:
        Comparison(probe, *parts[probe.kind], reference, port, report, progress).run()


@dataclass(frozen=True)
class Comparison:
    """Comparison of one run. before, after: the part of the source and of the converted model."""

    probe: Probe
    before: ModelPart
    after: ModelPart
    reference: Build
    port: Build
    report: Report
    progress: Progress

    def run(self) -> None:
        """Compare in float32, and in the type in which the converted part is stored; fill the report."""
        held = self.before if _exact(self.after) else self.after  # the oracle's numbers
        oracle = self._side(self.reference, held, "float64")
        truth, names = self._trace(oracle), list(oracle.modules)
        ends = truth
        for dtype in dict.fromkeys(("float32", self.after.dtype)):
            sides = [
                self._side(self.reference, held, dtype, names),
                self._side(self.port, self.after, dtype, names),
            ]
            self._compare_modules(dtype, [truth, *(self._trace(side, truth.outputs) for side in sides)], held)
            whole = [truth, *(self._trace(side) for side in sides)]
            self._compare_results(dtype, whole)
            ends = whole[-1]
        if not _exact(self.after) and self.probe.targets is not None:
            source = self._trace(self._side(self.reference, self.before, "float32"))
            own, converted = (_whole(run.results["logits"]) for run in (source, ends))
            self.report.losses[self.probe.part] = teacher_forced(own, converted, self.probe.targets)

    def _side(self, build: Build, part: ModelPart, dtype: str, names: Sequence[str] = ()) -> Side:
        transposed = [
            name for name in names if build is self.port and re.fullmatch(self.probe.transposed, name)
        ]
        return side_of(self.probe, *build(self.probe, part, dtype), names, transposed)

    def _trace(self, side: Side, truth: Values | None = None) -> Trace:
        return trace(side, truth, lambda name: self.progress(f"{self.probe.name}: {name}"))

    def _compare_modules(self, dtype: str, runs: list[Trace], held: ModelPart) -> None:
        """Add a row for each module, and for what is between the last ones and the results."""
        for name in runs[0].outputs:
            if name.endswith(".encode"):
                self.report.choices.append(self._codes(name, dtype, runs, held))
            else:
                label = name.removeprefix("model.").removesuffix(".decode")
                self._add(label, dtype, [run.outputs.get(name, []) for run in runs])
        for name, values in runs[0].results.items():
            if values[0].dtype.kind == "f":
                self._add(name, dtype, [run.results[name] for run in runs])

    def _compare_results(self, dtype: str, runs: list[Trace]) -> None:
        """Add the row of the last result, and the agreement of codes."""
        part, last = self.probe.part, list(runs[0].results)[-1]
        ends = [run.results[last] for run in runs]
        if ends[0][0].dtype.kind != "f":  # no verdict: a near-tie changes all later codebooks of its frame
            truth, port = np.concatenate(ends[0]), np.concatenate(ends[2])
            self.report.choices.append(Choices(part, END, dtype, truth.size, int((truth == port).sum())))
            return
        self._add(END, dtype, ends)
        if last == "logits":
            truth, torch, port = map(_whole, ends)
            title, chosen = "argmax of the logits", port.argmax(-1)
            self.report.choices.append(
                compare_choices(part, title, dtype, -truth, -torch, chosen, self._judged(dtype))
            )

    def _add(self, layer: str, dtype: str, sides: list[list[np.ndarray]]) -> None:
        judged = self._judged(dtype)
        self.report.rows.append(compare_outputs(self.probe.part, layer, dtype, sides, judged=judged))

    def _judged(self, dtype: str) -> bool:
        """Judge float32 and unquantized layers only: on a CPU, MLX sums quantized products in 16 bits."""
        return dtype == "float32" or not _is_quantized(self.after)

    def _codes(self, name: str, dtype: str, runs: list[Trace], held: ModelPart) -> Choices:
        """Compare a quantizer's codes by the oracle's distances."""
        assert self.probe.entries is not None
        quantizer = name.removesuffix(".encode")
        tensor, between = self.probe.entries
        entries = held.read(f"{quantizer}.{tensor}")

        def costs(run: Trace) -> np.ndarray:
            if between == "directions":
                vectors = run.outputs[f"{quantizer}.in_proj"]
            else:
                vectors = [value.swapaxes(1, 2) for value in run.inputs[name]]
            return np.concatenate([distances(value, entries, between) for value in vectors], axis=1)

        codes = np.concatenate(runs[2].outputs[name], axis=1)
        truth, torch = map(costs, runs[:2])
        return compare_choices(self.probe.part, quantizer, dtype, truth, torch, codes, True)


def _whole(logits: list[np.ndarray]) -> np.ndarray:
    """Join the logits of all calls, (R, T, ..., V), or of stages, (R, V) each."""
    return np.stack(logits, axis=1) if logits[0].ndim == 2 else np.concatenate(logits, axis=1)


def _exact(part: ModelPart) -> bool:
    """True if a converted part should contain exactly its source's numbers."""
    return not _is_quantized(part) and part.dtype == "float32"


def _is_quantized(part: ModelPart) -> bool:
    """True if any layer of a converted part is quantized, which adds its scales."""
    return part.quantization is not None and any(len(move.sources) > 1 for move in part.moves.values())


def _title(kind: str) -> str:
    """Title of a part in the report: its folder, or the model."""
    return models.network(kind).folder or kind


def _check_shapes(before: ModelPart, after: ModelPart) -> None:
    other = [
        f"{name} {list(before.shape(name))} and "
        f"{list(after.shape(name)) if name in after.names() else 'nothing'}"
        for name in before.names()
        if name not in after.names() or before.shape(name) != after.shape(name)
    ]
    other += [
        f"{name} nothing and {list(after.shape(name))}"
        for name in after.names()
        if name not in before.names()
    ]
    if other:
        more = f" and {len(other) - 3} more" if len(other) > 3 else ""
        raise CheckpointError(
            f"{after.files[0].parent}: not converted from {before.files[0]}: {'; '.join(other[:3])}{more}; "
            "give the checkpoint that it was converted from"
        )


def _differences(before: ModelPart, after: ModelPart) -> list[str]:
    """List changed texts and entries of the configuration, except the default sampling and the text rules,
    which users edit.
    """
    at = f"{after.folder}/" if after.folder else ""
    old, new = _flat(asdict(before.config)), _flat(asdict(after.config))
    found = [
        f"{at}{name}: {old.get(name)!r} in the source, {new.get(name)!r} in the converted model"
        for name in old | new
        if old.get(name) != new.get(name) and not name.startswith("sampling.")
    ]
    return found + [
        f"{at}{name}: the text differs from the source's"
        for name, text in before.documents.items()
        if name in models.network(before.kind).documents
        and text.splitlines() != after.documents[name].splitlines()
    ]


def _flat(config: Mapping[str, Any], at: str = "") -> dict[str, Any]:
    flat = {}
    for name, value in config.items():
        if isinstance(value, tuple) and value and isinstance(value[0], dict):
            value = {str(i): item for i, item in enumerate(value)}
        flat |= _flat(value, f"{at}{name}.") if isinstance(value, dict) else {at + name: value}
    return flat
