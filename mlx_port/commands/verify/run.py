"""Run of both sides one after the other, a layer at a time, on the same inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mlx_port.commands.verify.conversion import compare_tensors, teacher_forced
from mlx_port.commands.verify.measure import Choices, LayerRow, compare_choices, distances, measure
from mlx_port.commands.verify.report import Report
from tts_core import models
from tts_core.errors import CheckpointError
from tts_core.nn.ladder import InputSources, Rung, ladder
from tts_core.nn.layer_order import Stage, State
from tts_core.nn.layers import Layers

if TYPE_CHECKING:
    from converters.published import ModelPart, Published

Runner = Callable[[Stage, Sequence[State]], list[State]]  # loads a layer's weights and runs it on each state
Side = Callable[["ModelPart", type[Layers], object, str], Runner]  # weights, layers, configuration, dtype
Progress = Callable[[str], object]

END = "whole network"


@dataclass(frozen=True)
class Trace:
    """Run of a network.

    inputs: of each stage, common to all sides.
    made: the stages' outputs.
    whole: the final state if every stage is fed this run's own outputs.
    """

    inputs: list[State]
    made: list[State]
    whole: State


def trace(
    stages: Sequence[Stage],
    runner: Runner,
    state: State,
    given: Sequence[State] | None = None,
    progress: Progress = lambda _: None,
) -> Trace:
    """Run the stages in order, each twice: on the common input and on this run's own outputs.

    given: the common inputs; None builds them from this run's outputs, rounded to float32.
    """
    own, common = state, state
    read: list[State] = []
    made: list[State] = []
    for place, stage in enumerate(stages):
        progress(stage.name)
        read.append(common if given is None else given[place])
        one, next_own = runner(stage, (read[-1], own))
        made.append(one)
        own = own | next_own
        common = common | {name: _rounded(value) for name, value in made[-1].items()}
    return Trace(read, made, own)


class Comparison:
    """Comparison of one network with the oracle's run. quantized: True if MLX's weights are."""

    def __init__(
        self, rung: Rung, oracle: Runner, state: State, report: Report, progress: Progress, quantized: bool
    ):
        self.part, self.stages, self.state = rung.part, rung.stages, state
        self.report, self.progress, self.quantized = report, progress, quantized
        self.truth = trace(self.stages, oracle, state, progress=self._tell)

    def compare(self, yardstick: Runner, port: Runner, dtype: str, codebooks: ModelPart) -> State:
        """Compare the layers in `dtype` and add the rows to the report. Returns MLX's own last state.

        codebooks: the weights of the oracle's quantizers.
        """
        torch, mlx = (
            trace(self.stages, side, self.state, self.truth.inputs, self._tell) for side in (yardstick, port)
        )
        for stage, *made in zip(self.stages, self.truth.made, torch.made, mlx.made, strict=True):
            self.report.rows += [
                self._row(name, dtype, arrays, made) for name, arrays in stage.compared.items()
            ]
            if stage.codebook is not None:
                self.report.choices.append(self._codes(stage, dtype, made, codebooks))
        ends = [run.whole for run in (self.truth, torch, mlx)]
        last = self.stages[-1]
        if last.codebook is not None:  # no verdict: a near-tie changes all later codebooks of its frame
            equal = int((ends[0]["codes"] == ends[2]["codes"]).sum())
            self.report.choices.append(Choices(self.part, END, dtype, ends[0]["codes"].size, equal))
            return mlx.whole
        self.report.rows.append(self._row(END, dtype, last.arrays, ends))
        if last.arrays[0].startswith("logits"):
            truth, yard, chosen = (logits_of(last, end) for end in ends)
            self.report.choices.append(
                compare_choices(
                    self.part,
                    "argmax of the logits",
                    dtype,
                    -truth,
                    -yard,
                    chosen.argmax(-1),
                    self._judged(dtype),
                )
            )
        return mlx.whole

    def _tell(self, stage: str) -> None:
        self.progress(f"{self.part}: {stage}")

    def _row(self, layer: str, dtype: str, names: Sequence[str], made: Sequence[State]) -> LayerRow:
        truth, torch, mlx = ([side[name] for name in names] for side in made)
        return measure(self.part, layer, dtype, truth, torch, mlx, self._judged(dtype))

    def _judged(self, dtype: str) -> bool:
        """Judge float32 and unquantized layers only: on a CPU, MLX sums quantized products in 16 bits."""
        return dtype == "float32" or not self.quantized

    def _codes(self, stage: Stage, dtype: str, made: Sequence[State], codebooks: ModelPart) -> Choices:
        assert stage.codebook is not None
        name, between = stage.codebook
        codebook = codebooks.read(name)
        truth, yardstick = (distances(side["encodings"], codebook, between) for side in made[:2])
        return compare_choices(self.part, stage.name, dtype, truth, yardstick, made[2]["codes"][:, -1], True)


def logits_of(last: Stage, state: State) -> np.ndarray:
    """Logits of a network's last layer: (R, T, V), or (R, T, C, V) for several codebooks."""
    logits = [state[name] for name in last.arrays]
    return np.stack(logits, axis=2) if len(logits) > 1 else logits[0]


def verify(
    source: Published,
    destination: Published,
    reference: Side,
    port: Side,
    report: Report,
    *,
    progress: Progress = lambda _: None,
) -> None:
    """Compare a converted model with its source; results are added to `report`, whose settings are used.

    reference, port: layers of torch and of MLX.
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
    rungs = ladder(str(destination.model), given)
    groups = {rung.kind: rung.groups for rung in rungs}
    for kind, pair in parts.items():
        progress(f"tensors of {models.network(kind).title}")
        classes, faults = compare_tensors(_title(kind), *pair, groups.get(kind))
        report.tensors += classes
        report.faults += faults
    for rung in rungs:
        _climb(rung, given, *parts[rung.kind], reference, port, report, progress)


def _climb(
    rung: Rung,
    given: InputSources,
    before: ModelPart,
    after: ModelPart,
    reference: Side,
    port: Side,
    report: Report,
    progress: Progress,
) -> None:
    """Compare one rung in float32, and in the type in which the converted part is stored."""
    held = before if _exact(after) else after  # the numbers for the oracle
    state = rung.state(given)
    oracle = reference(held, rung.layers, before.config, "float64")
    comparison = Comparison(rung, oracle, state, report, progress, _is_quantized(after))
    given.made.update({name: comparison.truth.whole[name] for name in rung.keeps})
    end: State = {}
    for dtype in dict.fromkeys(("float32", after.dtype)):
        yardstick = reference(held, rung.layers, before.config, dtype)
        end = comparison.compare(yardstick, port(after, rung.layers, after.config, dtype), dtype, held)
    if not _exact(after) and rung.targets is not None:
        source = reference(before, rung.layers, before.config, "float32")
        own = trace(rung.stages, source, state, progress=progress).whole
        last = rung.stages[-1]
        report.losses[rung.part] = teacher_forced(
            logits_of(last, own), logits_of(last, end), rung.targets(state)
        )


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
            value = {str(i): one for i, one in enumerate(value)}
        flat |= _flat(value, f"{at}{name}.") if isinstance(value, dict) else {at + name: value}
    return flat


def _rounded(value: np.ndarray) -> np.ndarray:
    return value.astype(np.float32) if value.dtype.kind == "f" else value
