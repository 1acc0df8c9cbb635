"""Runs the sides one after another, a layer at a time, on the same inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mlx_port.commands.verify.conversion import compare_tensors, teacher_forced
from mlx_port.commands.verify.measure import Choices, Row, compare_choices, distances, measure
from mlx_port.commands.verify.report import Report
from tts_core import models
from tts_core.errors import CheckpointError
from tts_core.nn.ladder import Given, Rung, ladder
from tts_core.nn.layer_order import Stage, State

if TYPE_CHECKING:
    from converters.published import Part, Published

Layers = Callable[
    [Stage, Sequence[State]], list[State]
]  # gives a layer its weights and runs it on each state
Side = Callable[["Part", str, Any, str], Layers]  # whose weights, module and class, configuration, dtype
Progress = Callable[[str], object]

END = "whole network"


@dataclass(frozen=True)
class Trace:
    """A run of a network. inputs: of each stage, common to all sides.  made: what it made of them.

    whole: the state in the end when every stage was fed what this run itself had made.
    """

    inputs: list[State]
    made: list[State]
    whole: State


def trace(
    stages: Sequence[Stage],
    layers: Layers,
    state: State,
    given: Sequence[State] | None = None,
    progress: Progress = lambda _: None,
) -> Trace:
    """Run the stages in order, each twice: on the common input and on this run's own.

    given: the common inputs; None makes them, from what the stages before made, rounded to float32.
    """
    own, common = state, state
    read: list[State] = []
    made: list[State] = []
    for place, stage in enumerate(stages):
        progress(stage.name)
        read.append(common if given is None else given[place])
        one, next_own = layers(stage, (read[-1], own))
        made.append(one)
        own = own | next_own
        common = common | {name: _rounded(value) for name, value in made[-1].items()}
    return Trace(read, made, own)


class Comparison:
    """One network: the oracle's run, and the others against it. quantized: whether MLX's weights are."""

    def __init__(
        self, rung: Rung, oracle: Layers, state: State, report: Report, progress: Progress, quantized: bool
    ):
        self.part, self.stages, self.state = rung.part, rung.stages, state
        self.report, self.progress, self.quantized = report, progress, quantized
        self.truth = trace(self.stages, oracle, state, progress=self._tell)

    def compare(self, yardstick: Layers, port: Layers, dtype: str, codebooks: Part) -> State:
        """Add to the report what MLX's layers do beside torch's in `dtype`; returns MLX's own last state.

        codebooks: the weights that the oracle's quantizers have.
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
        if last.codebook is not None:  # one near-tie changes all later codebooks of its frame: no verdict
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

    def _row(self, layer: str, dtype: str, names: Sequence[str], made: Sequence[State]) -> Row:
        truth, torch, mlx = ([side[name] for name in names] for side in made)
        return measure(self.part, layer, dtype, truth, torch, mlx, self._judged(dtype))

    def _judged(self, dtype: str) -> bool:
        """MLX's quantised products on a CPU add up in 16 bits, torch's in 32: its error bounds nothing."""
        return dtype == "float32" or not self.quantized

    def _codes(self, stage: Stage, dtype: str, made: Sequence[State], codebooks: Part) -> Choices:
        assert stage.codebook is not None
        name, between = stage.codebook
        codebook = codebooks.read(name)
        truth, yardstick = (distances(side["encodings"], codebook, between) for side in made[:2])
        return compare_choices(self.part, stage.name, dtype, truth, yardstick, made[2]["codes"][:, -1], True)


def logits_of(last: Stage, state: State) -> np.ndarray:
    """What a network's last layer foretells. (R, T, V), or (R, T, C, V) where there are several codebooks."""
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
    """Compare a converted model with what it was made from, into `report`, which says how much to run.

    reference, port: torch's layers and MLX's.
    Raises CheckpointError where the two are not the same network, UsageError for values out of range.
    """
    parts = {kind: (part, destination.parts[kind]) for kind, part in source.parts.items()}
    for pair in parts.values():
        _check_shapes(*pair)
    for pair in parts.values():
        report.differences += _differences(*pair)
    given = Given(
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
    given: Given,
    before: Part,
    after: Part,
    reference: Side,
    port: Side,
    report: Report,
    progress: Progress,
) -> None:
    """One rung: float32, and the type in which the converted part is stored."""
    held = before if _exact(after) else after  # whose numbers the oracle computes with
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


def _exact(part: Part) -> bool:
    """Whether a converted part should hold its source's very numbers."""
    return not _is_quantized(part) and part.dtype == "float32"


def _is_quantized(part: Part) -> bool:
    """Whether any layer of a converted part is: its scales are there."""
    return part.quantization is not None and any(len(move.sources) > 1 for move in part.moves.values())


def _title(kind: str) -> str:
    """Of a part in the report: its folder, or the model."""
    return models.network(kind).folder or kind


def _check_shapes(before: Part, after: Part) -> None:
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
            f"{after.files[0].parent}: not made from {before.files[0]}: {'; '.join(other[:3])}{more}; "
            "give the checkpoint that it was converted from"
        )


def _differences(before: Part, after: Part) -> list[str]:
    """Entries of the configuration that a conversion changed, and texts; the default sampling may be the
    user's own.
    """
    at = f"{models.network(before.kind).folder}/" if models.network(before.kind).folder else ""
    old, new = _flat(asdict(before.config)), _flat(asdict(after.config))
    found = [
        f"{at}{name}: {old.get(name)!r} in the source, {new.get(name)!r} in the converted model"
        for name in old | new
        if old.get(name) != new.get(name) and not name.startswith("sampling.")
    ]
    return found + [
        f"{at}{name}: not the text that the source has"
        for name, text in before.documents.items()
        if text.splitlines() != after.documents[name].splitlines()
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
