"""Runs the sides one after another, a layer at a time, on the same inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mlx_port.verify import inputs
from mlx_port.verify.conversion import compare_tensors, teacher_forced
from mlx_port.verify.measure import Choices, Row, compare_choices, distances, measure
from mlx_port.verify.report import Report
from tts_core.errors import CheckpointError
from tts_core.stages import Kind, Stage, State, decode_stages, dia_stages, encode_stages

if TYPE_CHECKING:
    from converters.published import Part, Published

Layers = Callable[
    [Stage, Sequence[State]], list[State]
]  # gives a layer its weights and runs it on each state
Side = Callable[["Part", Any, str], Layers]  # whose weights, configuration, dtype
Progress = Callable[[str], object]

END = "whole network"
MEASURED: dict[
    Kind, dict[str, tuple[str, ...]]
] = {  # what is compared of a stage: suffix of its name → arrays
    "text_embedding": {"": ("text", "nothing")},
    "encoder_layer": {"": ("text", "nothing")},
    "encoder_norm": {"": ("text", "nothing")},
    "row_embedding": {"": ("rows",)},
    "decoder_layer": {".cross_attention": ("keys", "values"), "": ("rows",)},
    "decoder_norm": {"": ("rows",)},
    "head": {"": ("logits",)},
    "encoder_input": {"": ("hidden",)},
    "encoder_block": {"": ("hidden",)},
    "encoder_output": {"": ("latents",)},
    "quantizer": {"": ("encodings",)},
    "dequantizer": {"": ("hidden",)},
    "decoder_input": {"": ("hidden",)},
    "decoder_block": {"": ("hidden",)},
    "decoder_output": {"": ("audio",)},
}


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
    """One network: the oracle's run, and the others against it."""

    def __init__(
        self,
        part: str,
        stages: Sequence[Stage],
        oracle: Layers,
        state: State,
        report: Report,
        progress: Progress,
    ):
        self.part, self.stages, self.state, self.report, self.progress = part, stages, state, report, progress
        self.truth = trace(stages, oracle, state, progress=progress)

    def compare(self, yardstick: Layers, port: Layers, dtype: str, codebooks: Part | None = None) -> State:
        """Add to the report what MLX's layers do beside torch's in `dtype`; returns MLX's own last state.

        codebooks: the weights that the oracle's quantizers have.
        """
        torch, mlx = (
            trace(self.stages, side, self.state, self.truth.inputs, self.progress)
            for side in (yardstick, port)
        )
        for stage, *made in zip(self.stages, self.truth.made, torch.made, mlx.made, strict=True):
            self.report.rows += [
                self._row(stage.name + suffix, dtype, names, made)
                for suffix, names in MEASURED[stage.kind].items()
            ]
            if stage.kind == "quantizer" and codebooks is not None:
                self.report.choices.append(self._codes(stage, dtype, made, codebooks))
        ends = [run.whole for run in (self.truth, torch, mlx)]
        for name in ("logits", "audio"):
            if name in ends[0]:
                self.report.rows.append(self._row(END, dtype, (name,), ends))
        if "logits" in ends[0]:
            truth, yard, chosen = (end["logits"] for end in ends)
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
        elif "latents" in ends[0]:  # one near-tie changes all later codebooks of its frame: no verdict
            equal = int((ends[0]["codes"] == ends[2]["codes"]).sum())
            self.report.choices.append(Choices(self.part, END, dtype, ends[0]["codes"].size, equal))
        return mlx.whole

    def _row(self, layer: str, dtype: str, names: Sequence[str], made: Sequence[State]) -> Row:
        truth, torch, mlx = ([side[name] for name in names] for side in made)
        return measure(self.part, layer, dtype, truth, torch, mlx, self._judged(dtype))

    def _judged(self, dtype: str) -> bool:
        """MLX's quantised products on a CPU add up in 16 bits, torch's in 32: its error bounds nothing."""
        return dtype == "float32" or self.report.quantization is None

    def _codes(self, stage: Stage, dtype: str, made: Sequence[State], codebooks: Part) -> Choices:
        codebook = codebooks.read(f"{stage.modules[0]}.codebook.weight")
        truth, yardstick = (distances(side["encodings"], codebook) for side in made[:2])
        return compare_choices(self.part, stage.name, dtype, truth, yardstick, made[2]["codes"][:, -1], True)


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
    dia, codec, new_dia, new_codec = *_parts(source), *_parts(destination)
    for before, after in ((dia, new_dia), (codec, new_codec)):
        _check_shapes(before, after)
        report.differences += _differences(before, after)
    inputs.check_rows(dia.config, report.grid_rows)
    for before, after in ((dia, new_dia), (codec, new_codec)):
        progress(f"tensors of {'Dia' if before.kind == 'dia' else 'the codec'}")
        classes, faults = compare_tensors(before, after)
        report.tensors += classes
        report.faults += faults

    sides = [reference(codec, codec.config, dtype) for dtype in ("float64", "float32")]
    sides.append(port(new_codec, new_codec.config, "float32"))
    samples = inputs.signal(codec.config, report.seconds, report.seed)
    state = inputs.encode_state(codec.config, samples)
    comparison = Comparison("codec", encode_stages(codec.config), sides[0], state, report, progress)
    comparison.compare(sides[1], sides[2], "float32", codec)
    codes = comparison.truth.whole["codes"]
    comparison = Comparison(
        "codec", decode_stages(codec.config), sides[0], {"codes": codes}, report, progress
    )
    comparison.compare(sides[1], sides[2], "float32")

    held = dia if report.exact else new_dia  # whose numbers the oracle computes with
    state = inputs.dia_state(dia.config, report.grid_rows, codes, report.seed)
    oracle = reference(held, dia.config, "float64")
    comparison = Comparison("dia", dia_stages(dia.config), oracle, state, report, progress)
    for dtype in dict.fromkeys(("float32", new_dia.dtype)):
        logits = comparison.compare(
            reference(held, dia.config, dtype), port(new_dia, new_dia.config, dtype), dtype
        )["logits"]
    if not report.exact:
        before = trace(comparison.stages, reference(dia, dia.config, "float32"), state, progress=progress)
        report.loss = teacher_forced(before.whole["logits"], logits, state["tokens"], dia.config.eos_token_id)


def _parts(published: Published) -> tuple[Part, Part]:
    return published.dia, published.codec


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
    """Entries of the configuration that a conversion changed; the default sampling may be the user's own."""
    old, new = _flat(asdict(before.config)), _flat(asdict(after.config))
    return [
        f"{name}: {old.get(name)!r} in the source, {new.get(name)!r} in the converted model"
        for name in old | new
        if old.get(name) != new.get(name) and not name.startswith("sampling.")
    ]


def _flat(config: dict[str, Any], at: str = "") -> dict[str, Any]:
    flat = {}
    for name, value in config.items():
        flat |= _flat(value, f"{at}{name}.") if isinstance(value, dict) else {at + name: value}
    return flat


def _rounded(value: np.ndarray) -> np.ndarray:
    return value.astype(np.float32) if value.dtype.kind == "f" else value
