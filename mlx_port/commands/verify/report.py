"""Results of verify as text and JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from textwrap import wrap
from typing import Any

from mlx_port.commands.verify.conversion import Fault, Loss, TensorClass
from mlx_port.commands.verify.measure import FACTOR, FLOOR, Choices, LayerRow
from tts_core.printable import counted, one_line

WIDTH = 100
HEAD = "  err mlx    /scale err torch  ratio      SNR     bound"
METHOD = (
    "Every layer reads the output of the float64 layer before, rounded, so errors do not add up, except in "
    "the rows 'whole network'."
)
UNJUDGED = (
    "As this model runs here, without a verdict: on a CPU, MLX sums quantized products in 16 bits, torch in "
    "32. The port is judged by the same layers in float32, above."
)


@dataclass(frozen=True)
class PartResult:
    """Result of a part of the model.

    layers: number of judged rows.
    nearest: the row nearest to its bound.
    share: its error over the bound.
    """

    part: str
    passed: bool
    layers: int
    nearest: str | None
    share: float


@dataclass
class Report:
    """Settings of a run and its results, filled as they come."""

    source: str
    destination: str
    dtype: str  # of the converted model
    quantization: Mapping[str, Any] | None
    grid_rows: int
    seconds: float
    seed: int
    environment: dict[str, str] = field(default_factory=dict)  # versions, device, TF32
    rows: list[LayerRow] = field(default_factory=list)
    choices: list[Choices] = field(default_factory=list)
    tensors: list[TensorClass] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)  # of the configurations
    changed: list[str] = field(default_factory=list)  # files that are not as the conversion wrote them
    losses: dict[str, Loss] = field(default_factory=dict)  # by part, of parts not stored in float32
    seconds_taken: float = 0.0
    peak_memory_bytes: int = 0

    @property
    def exact(self) -> bool:
        """True if the converted model should contain exactly its source's numbers."""
        return self.quantization is None and self.dtype == "float32"

    @property
    def passed(self) -> bool:
        """True if no check failed."""
        return not self.failures()

    @property
    def stored_as(self) -> str:
        """Number format of the converted model, for people."""
        if self.quantization is None:
            return self.dtype
        how = self.quantization
        return f"{how['mode']} {how['bits']} bits, groups of {how['group_size']}, the rest {self.dtype}"

    def failures(self) -> list[str]:
        """List a line for each failed check, naming the layer, tensor or setting."""
        found = [f"{name}: changed since the conversion, by its sha256" for name in self.changed]
        found += [f"configuration: {line}" for line in self.differences]
        found += [
            f"{fault.part} {fault.tensor}: {fault.error:.2e} from its source, {fault.allowed:.2e} allowed"
            for fault in self.faults
        ]
        found += [
            f"{row.part} {row.layer} ({row.dtype}): error {row.error:.2e}, bound {row.bound:.2e}"
            for row in self.rows
            if not row.passed
        ]
        found += [
            f"{row.part} {row.layer} ({row.dtype}): {len(row.wrong)} of {counted(row.total, 'code')} wrong, "
            f"worst by {max(row.wrong):.2e}, {row.allowed:.2e} allowed"
            for row in self.choices
            if not row.passed
        ]
        return found

    def parts(self) -> list[PartResult]:
        """List the result of each part, in order."""
        return [self._part(name) for name in dict.fromkeys(row.part for row in self.rows)]

    def _part(self, name: str) -> PartResult:
        rows = [row for row in self.rows if row.part == name]
        judged = [row for row in rows if row.judged]
        worst = max(judged, key=lambda row: row.share, default=None)
        checks = [*rows, *(row for row in self.choices if row.part == name)]
        faults = [fault for fault in self.faults if name.split(",")[0] == fault.part]
        return PartResult(
            name,
            not faults and all(check.passed for check in checks),
            len(judged),
            None if worst is None else f"{worst.layer} ({worst.dtype})",
            0.0 if worst is None else worst.share,
        )

    def to_dict(self) -> dict[str, Any]:
        """Convert to JSON-serializable values; values that are not finite become null."""
        losses = {part: vars(loss) | {"change": loss.change} for part, loss in self.losses.items()}
        return finite(
            {
                "format_version": 1,
                "passed": self.passed,
                "failures": self.failures(),
                "source": self.source,
                "destination": self.destination,
                "dtype": self.dtype,
                "quantization": None if self.quantization is None else dict(self.quantization),
                "oracle": f"torch float64 on the {'source' if self.exact else 'converted model'}'s numbers",
                "bound": f"err(mlx) <= {FACTOR} err(torch) + {FLOOR} eps scale",
                "method": METHOD,
                "grid_rows": self.grid_rows,
                "seconds": self.seconds,
                "seed": self.seed,
                "environment": self.environment,
                "layers": [
                    vars(row) | {"relative": row.relative, "ratio": row.ratio, "passed": row.passed}
                    for row in self.rows
                ],
                "codes": [vars(row) | {"passed": row.passed} for row in self.choices],
                "tensors": [vars(row) for row in self.tensors],
                "tensor_faults": [vars(fault) for fault in self.faults],
                "configuration_differences": self.differences,
                "changed_files": self.changed,
                "parts": [vars(part) for part in self.parts()],
                "conversion_loss": next(iter(losses.values()), None),  # of the language model
                "conversion_losses": losses,
                "seconds_taken": self.seconds_taken,
                "peak_memory_bytes": self.peak_memory_bytes,
            }
        )

    def summary(self) -> list[str]:
        """List the lines for the model card: the verdict, the change by conversion, the versions."""
        layers, tensors = self._counts()
        failed = counted(len(self.failures()), "check")
        verdict = "all within the bound" if self.passed else f"FAIL: {failed} failed"
        return [
            f"{layers} of MLX in float32 compared with PyTorch in float64, "
            f"{tensors} with the source: {verdict}",
            *(f"{part}, {loss_line(loss)}" for part, loss in self.losses.items()),
            ", ".join(f"{name} {value}" for name, value in self.environment.items()),
        ]

    def text(self) -> str:
        """Format the verdict for a terminal: what was checked, and what the verdict does not cover."""
        return "\n".join(map(one_line, self._short()))

    def details(self) -> str:
        """Format everything for a terminal, with a line for each layer."""
        return "\n".join(map(one_line, self._lines()))

    def _short(self) -> Iterator[str]:
        yield f"{self.source} -> {self.destination} ({self.stored_as}); --verbose prints every layer"
        yield from map(_part_line, self.parts())
        for part, loss in self.losses.items():
            yield from wrap(
                f"Not covered by the verdict, {part}: what {self.stored_as} costs. "
                f"The likeliest code stays the same at {100 * loss.agreement:.0f} % of "
                f"{counted(loss.codes, 'place')}; others may sound as good. Listen, or measure with mlx-port "
                "judge; more bits keep more.",
                WIDTH,
            )
        layers, tensors = self._counts()
        yield from self._verdict(
            f"{layers} of MLX within the bound of PyTorch on the same numbers, "
            f"{tensors} as converted from the source"
        )

    def _lines(self) -> Iterator[str]:
        yield f"{self.source} -> {self.destination} ({self.stored_as})"
        yield ", ".join(f"{name} {value}" for name, value in self.environment.items())
        numbers = "the source's" if self.exact else "the converted model's"
        yield from wrap(f"Oracle: torch float64 on {numbers} numbers. {METHOD}", WIDTH)
        yield f"Bound: err(mlx) <= {FACTOR} err(torch) + {FLOOR} eps scale."
        for part, dtype in dict.fromkeys((row.part, row.dtype) for row in self.rows):
            rows = [row for row in self.rows if (row.part, row.dtype) == (part, dtype)]
            width = max(len(row.layer) for row in rows)
            yield ""
            yield f"{f'{part}, {dtype}':<{width}}  {HEAD}"
            yield from (_line(row, width) for row in rows)
            if not all(row.judged for row in rows):
                yield from wrap(UNJUDGED, WIDTH)
        yield ""
        yield from _choice_lines(self.choices)
        yield ""
        for row in self.tensors:
            lost = f"SNR {row.snr_db:.1f} dB, largest change {row.error:.2e}"
            lost = "exact" if row.snr_db == math.inf else lost
            yield f"{row.name}: {counted(row.tensors, 'tensor')}, {row.parameters:,} numbers, {lost}"
        yield from (f"{part}, {loss_line(loss)}" for part, loss in self.losses.items())
        yield f"{self.seconds_taken:.1f} s, peak memory {self.peak_memory_bytes / 1e9:.2f} GB"
        yield ""
        yield from map(_part_line, self.parts())
        layers, tensors = self._counts()
        yield from self._verdict(f"{layers} within the bound, {tensors}")

    def _counts(self) -> tuple[str, str]:
        """Numbers of judged layers and of tensors, with their nouns."""
        layers, tensors = sum(row.judged for row in self.rows), sum(row.tensors for row in self.tensors)
        return counted(layers, "layer"), counted(tensors, "tensor")

    def _verdict(self, passed: str) -> list[str]:
        return [f"FAIL {line}" for line in self.failures()] or [f"PASS: {passed}"]


def _part_line(part: PartResult) -> str:
    nearest = f", nearest to it {part.nearest} at {100 * part.share:.0f}%" if part.nearest else ""
    verdict = "ok" if part.passed else "FAIL"
    return f"{part.part}: {counted(part.layers, 'layer')} against the bound{nearest}: {verdict}"


def _line(row: LayerRow, width: int) -> str:
    ratio = f"{row.ratio:6.2f}" if row.ratio < 1000 else "  >999"
    snr = "   exact" if row.snr_db == math.inf else f"{row.snr_db:5.1f} dB"
    return (
        f"{row.layer:<{width}}  {row.error:9.2e} {row.relative:9.2e} {row.torch_error:9.2e} {ratio} {snr} "
        f"{row.bound:9.2e} {_verdict(row)}"
    )


def _verdict(row: LayerRow) -> str:
    return "FAIL" if not row.passed else "ok" if row.judged else "-"


def _choice_lines(choices: Sequence[Choices]) -> Iterator[str]:
    """Summarize all quantizers in one line; list only those that differ."""
    books = [row for row in choices if row.layer.startswith("quantizer.")]
    equal, total = sum(row.equal for row in books), sum(row.total for row in books)
    yield f"codec, {counted(len(books), 'quantizer')}: {equal} of {counted(total, 'code')} equal"
    for row in choices:
        if row in books and row.equal == row.total:
            continue
        line = f"{row.part}, {row.layer} ({row.dtype}): {row.equal} of {counted(row.total, 'code')} equal"
        if row.near_ties:
            widest = max(row.near_ties)
            line += f", {len(row.near_ties)} near-ties of up to {widest:.2e} ({row.allowed:.2e} allowed)"
        yield line + (f", {len(row.wrong)} beyond that" if row.wrong else "")


def loss_line(loss: Loss) -> str:
    """Format the change of the predictions as one line."""
    line = (
        f"conversion: {100 * loss.agreement:.1f}% of {loss.codes} likeliest codes kept, "
        f"divergence {loss.divergence:.3g} nats a code"
    )
    if loss.targets:
        line += (
            f", cross-entropy {loss.source_cross_entropy:.4f} -> {loss.cross_entropy:.4f} "
            f"({loss.change:+.4f}) over {counted(loss.targets, 'code')}"
        )
    return line


def finite(value: Any) -> Any:
    """Replace numbers that are not finite by None, for JSON."""
    if isinstance(value, dict):
        return {name: finite(row) for name, row in value.items()}
    if isinstance(value, list | tuple):
        return [finite(row) for row in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
