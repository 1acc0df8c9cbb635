"""A report of `mlx-port bench --server` as an SVG: latencies by rate."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

WIDTH, HEIGHT, LEFT, TOP, GAP = 300, 200, 60, 60, 80
COLORS = {"p50": "#2563eb", "p95": "#d97706", "p99": "#b91c1c"}
PANELS = (("first_audio", "first audio, ms", 1000), ("whole", "whole, s", 1))
STEPS = 4  # of the vertical axis


def plot(found: Mapping[str, Any]) -> str:
    """Draw two panels: first audio and whole, a line for each percentile, alone as a dashed one (p50)."""
    width = LEFT + len(PANELS) * (WIDTH + GAP)
    sent = found["asked"]
    title = f"{sent['model']}, {sent['format']}, texts of {sent['characters']} characters"
    drawn = [
        _panel(found["loads"], name, label, scale, LEFT + index * (WIDTH + GAP))
        for index, (name, label, scale) in enumerate(PANELS)
    ]
    legend = "".join(
        f'<text x="{LEFT + 50 * index}" y="36" fill="{color}">{name}</text>'
        for index, (name, color) in enumerate(COLORS.items())
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {TOP + HEIGHT + 50}" '
        f'font-family="system-ui, sans-serif" font-size="11">'
        f'<rect width="100%" height="100%" fill="#fff"/><text x="{LEFT}" y="18">{escape(title)}</text>'
        f'{legend}<text x="{LEFT + 50 * len(COLORS)}" y="36">dashed: alone, p50; ring: too much</text>'
        f"{''.join(drawn)}</svg>\n"
    )


def _panel(loads: Sequence[Mapping[str, Any]], name: str, label: str, scale: float, left: float) -> str:
    done = [load for load in loads if load[name] is not None]
    top = _round_up(max((scale * load[name]["p99"] for load in done), default=1))
    rates = [load for load in done if load["rate"] is not None]
    across = [left + WIDTH * (index + 0.5) / len(rates) for index in range(len(rates))]

    def down(value: float) -> float:
        return TOP + HEIGHT * (1 - scale * value / top)

    shapes = [f'<text x="{left}" y="{TOP - 8}">{label}</text>']
    for step in range(STEPS + 1):
        y = TOP + HEIGHT * (1 - step / STEPS)
        shapes.append(
            f'<path d="M{left} {y:.1f}h{WIDTH}" stroke="#ddd"/>'
            f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{top * step / STEPS:g}</text>'
        )
    for load in done:
        if load["rate"] is None:
            y = down(load[name]["p50"])
            shapes.append(f'<path d="M{left} {y:.1f}h{WIDTH}" stroke="#555" stroke-dasharray="4 4"/>')
    for share, color in COLORS.items():
        points = [(x, down(load[name][share])) for x, load in zip(across, rates, strict=True)]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        shapes.append(f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="2"/>')
        for (x, y), load in zip(points, rates, strict=True):
            fill = color if load["overload"] is None else "#fff"
            value = f"{share} at {load['rate']:g} a second: {scale * load[name][share]:.4g}"
            shapes.append(
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{fill}" stroke="{color}">'
                f"<title>{value}</title></circle>"
            )
    for x, load in zip(across, rates, strict=True):
        shapes.append(
            f'<text x="{x:.1f}" y="{TOP + HEIGHT + 16}" text-anchor="middle">{load["rate"]:g}</text>'
        )
    middle = left + WIDTH / 2
    shapes.append(f'<text x="{middle}" y="{TOP + HEIGHT + 34}" text-anchor="middle">requests a second</text>')
    return "".join(shapes)


def _round_up(value: float) -> float:
    """The next of 1, 2, 4, 8 or 10 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(value)) if value > 0 else 1.0
    return next(power * step for step in (1, 2, 4, 8, 10) if power * step >= value * (1 - 1e-9))
