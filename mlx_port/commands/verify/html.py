"""The report as one HTML file with inline SVG plots; opening it fetches nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mlx_port.commands.page import document, escape, table
from mlx_port.commands.verify.measure import FACTOR, FLOOR, LayerRow
from mlx_port.commands.verify.report import METHOD, UNJUDGED, Report, loss_line

HEIGHT, LEFT, TOP, STEP = 260, 64, 12, 18
STYLE = """
:root{--mlx:#c2410c;--torch:#2563eb;--bound:#6b7280}
.pass{color:#15803d}.plot{overflow-x:auto}svg line{stroke:#8884}
.mlx{fill:var(--mlx);stroke:var(--mlx)}.torch{fill:var(--torch);stroke:var(--torch)}
.bound{fill:none;stroke:var(--bound)}.key span{margin-right:1.2rem}.swatch{display:inline-block;width:.7rem;
height:.7rem;margin-right:.3rem}
"""


def page(report: Report) -> str:
    """Build the HTML document."""
    verdict = '<b class="pass">PASS</b>' if report.passed else '<b class="fail">FAIL</b>'
    failures = "".join(f'<li class="fail">{escape(line)}</li>' for line in report.failures())
    environment = ", ".join(f"{name} {value}" for name, value in report.environment.items())
    groups = dict.fromkeys((row.part, row.dtype) for row in report.rows)
    sections = "".join(_section(report, part, dtype) for part, dtype in groups)
    body = (
        f"<h1>{escape(report.source)} → {escape(report.destination)}: {verdict}</h1>"
        f"<p>{escape(report.stored_as)}; {escape(environment)}</p><ul>{failures}</ul>"
        f"<p>{METHOD} Bound: err(mlx) ≤ {FACTOR} err(torch) + {FLOOR} eps scale.</p>"
        f"{_parts(report)}{sections}{_codes(report)}{_conversion(report)}"
    )
    return document(f"verify: {report.destination}", STYLE, body)


def _parts(report: Report) -> str:
    head = ("part", "layers", "nearest to its bound", "at", "")
    body = []
    for part in report.parts():
        nearest, share = escape(part.nearest or ""), f"{100 * part.share:.0f}%"
        body.append((escape(part.part), str(part.layers), nearest, share, _word(part.passed)))
    return f"<h2>Parts</h2>{table(head, body)}"


def _section(report: Report, part: str, dtype: str) -> str:
    rows = [row for row in report.rows if (row.part, row.dtype) == (part, dtype)]
    key = "".join(
        f'<span><span class="swatch" style="background:var(--{name})"></span>{label}</span>'
        for name, label in (("mlx", "MLX"), ("torch", "torch's own"), ("bound", "bound"))
    )
    errors = {"torch": [_share(row, row.torch_error) for row in rows], "mlx": [row.relative for row in rows]}
    bounds = [_share(row, row.bound) for row in rows]
    note = "" if all(row.judged for row in rows) else f"<p>{UNJUDGED}</p>"
    return (
        f"<h2>{escape(part)}, {escape(dtype)}: error / scale, against torch float64</h2>"
        f'<p class="key">{key}</p><div class="plot">{_errors(rows, errors, bounds)}</div>'
        f"<h2>{escape(part)}, {escape(dtype)}: signal-to-noise ratio of MLX</h2>"
        f'<div class="plot">{_snr(rows)}</div>'
        f"{note}<details><summary>Numbers</summary>{_table(rows)}</details>"
    )


def _errors(rows: Sequence[LayerRow], errors: dict[str, list[float]], bounds: list[float]) -> str:
    """Plot errors on a logarithmic axis; exact results are at the bottom."""
    known = [value for values in (*errors.values(), bounds) for value in values if 0 < value < math.inf]
    low = math.floor(math.log10(min(known, default=1e-8)))
    high = max(low + 1, math.ceil(math.log10(max(known, default=1.0))))

    def y(value: float) -> float:
        height = low if value <= 0 else high if value == math.inf else math.log10(value)
        return TOP + HEIGHT * (high - height) / (high - low)

    marks = [
        f'<path class="bound" d="M{_x(i) - 7} {y(value):.1f}h14">{_tip(row, f"bound {value:.2e}")}</path>'
        for i, (row, value) in enumerate(zip(rows, bounds, strict=True))
    ]
    for name, values in errors.items():
        marks += [
            f'<circle class="{name}" cx="{_x(i)}" cy="{y(value):.1f}" r="4">'
            f"{_tip(row, f'{name} {value:.2e}')}</circle>"
            for i, (row, value) in enumerate(zip(rows, values, strict=True))
        ]
    grid = [(y(10.0**power), f"1e{power}") for power in range(low, high + 1)]
    return _plot(rows, grid, marks)


def _snr(rows: Sequence[LayerRow]) -> str:
    """Plot a bar per row from zero; exact results have the full height."""
    top = (
        20 * math.ceil(max((row.snr_db for row in rows if math.isfinite(row.snr_db)), default=100) / 20) + 20
    )

    def height(row: LayerRow) -> float:
        return HEIGHT * min(max(row.snr_db, 0.0), top) / top

    bars = [
        f'<rect class="mlx" x="{_x(i) - 5}" y="{TOP + HEIGHT - height(row):.1f}" width="10" '
        f'height="{height(row):.1f}">{_tip(row, f"{row.snr_db:.1f} dB")}</rect>'
        for i, row in enumerate(rows)
    ]
    grid = [(TOP + HEIGHT * (top - level) / top, f"{level} dB") for level in range(0, top + 1, 40)]
    return _plot(rows, grid, bars)


def _plot(rows: Sequence[LayerRow], grid: Sequence[tuple[float, str]], marks: Sequence[str]) -> str:
    width, bottom = LEFT + STEP * len(rows) + 8, TOP + HEIGHT
    below = 7 * max((len(row.layer) for row in rows), default=0) + 12
    lines = "".join(
        f'<line x1="{LEFT}" x2="{width}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'
        for y, label in grid
    )
    names = "".join(
        f'<text transform="translate({_x(i) + 4} {bottom + 8}) rotate(-90)" text-anchor="end">'
        f"{escape(row.layer)}</text>"
        for i, row in enumerate(rows)
    )
    size = f'width="{width}" height="{bottom + below}" viewBox="0 0 {width} {bottom + below}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{lines}{"".join(marks)}{names}</svg>'


def _tip(row: LayerRow, text: str) -> str:
    return f"<title>{escape(row.layer)}: {text}</title>"


def _x(index: int) -> int:
    return LEFT + STEP // 2 + STEP * index


def _share(row: LayerRow, value: float) -> float:
    return value / row.scale if row.scale else value


def _table(rows: Sequence[LayerRow]) -> str:
    head = ("layer", "err mlx", "/ scale", "err torch", "ratio", "SNR dB", "bound", "")
    body = []
    for row in rows:
        errors = (f"{value:.2e}" for value in (row.error, row.relative, row.torch_error))
        others = f"{row.ratio:.2f}", f"{row.snr_db:.1f}", f"{row.bound:.2e}", _verdict(row)
        body.append((escape(row.layer), *errors, *others))
    return table(head, body)


def _verdict(row: LayerRow) -> str:
    return _word(row.passed) if row.judged or not row.passed else "–"


def _word(passed: bool) -> str:
    return '<span class="pass">ok</span>' if passed else '<span class="fail">FAIL</span>'


def _codes(report: Report) -> str:
    head = ("codes", "equal", "of", "near-ties", "wrong")
    body = []
    for choice in report.choices:
        counts = map(str, (choice.equal, choice.total, len(choice.near_ties), len(choice.wrong)))
        body.append((escape(f"{choice.part} {choice.layer}, {choice.dtype}"), *counts))
    return f"<h2>Codes</h2>{table(head, body)}"


def _conversion(report: Report) -> str:
    head = ("tensors", "number", "parameters", "SNR dB", "largest change")
    body = []
    for tensor in report.tensors:
        snr = "exact" if tensor.snr_db == math.inf else f"{tensor.snr_db:.1f}"
        body.append(
            (escape(tensor.name), str(tensor.tensors), f"{tensor.parameters:,}", snr, f"{tensor.error:.2e}")
        )
    loss = "".join(
        f"<p>{escape(part)}, {escape(loss_line(loss))}</p>" for part, loss in report.losses.items()
    )
    return f"<h2>Conversion</h2>{table(head, body)}{loss}"
