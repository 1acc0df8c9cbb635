"""The report of `mlx-port judge` as one HTML file with inline SVG plots; opening it fetches nothing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mlx_port.commands.page import document, escape, table
from tts_core.judges.judging import Judged, Summary
from tts_core.printable import counted

WIDTH, HEIGHT, BINS = 420, 120, 24
STYLE = "svg rect{fill:#2563eb}.wide{overflow-x:auto}"


def page(title: str, found: Sequence[Judged], lines: Sequence[Summary]) -> str:
    """Build the document."""
    plots = "".join(_histogram(line, found) for line in lines)
    failed = "".join(
        f'<li class="fail">{escape(item.row.name)}: {escape(item.error)}</li>' for item in found if item.error
    )
    body = (
        f"<h1>{escape(title)}: {counted(len(found), 'recording')}</h1>{_sums(lines)}<ul>{failed}</ul>{plots}"
        f"<h2>Recordings</h2><div class=wide>{_rows(found)}</div>"
    )
    return document(f"judge: {title}", STYLE, body)


def _sums(lines: Sequence[Summary]) -> str:
    body = [
        (line.figure, escape(line.judge), str(line.rows), f"{line.value:.3f}", line.interval)
        for line in lines
    ]
    return table(("figure", "judge", "recordings", "value", "95 %"), body)


def _rows(found: Sequence[Judged]) -> str:
    names = list(dict.fromkeys(name for item in found for name in item.figures))
    body = [
        (
            escape(item.row.name),
            *(f"{item.figures[name]:.3f}" if name in item.figures else "" for name in names),
        )
        for item in found
    ]
    return table(("recording", *names), body)


def _histogram(line: Summary, found: Sequence[Judged]) -> str:
    values = [item.figures[line.figure] for item in found if line.figure in item.figures]
    counts, edges = np.histogram(values, bins=BINS)
    step, top = WIDTH / BINS, max(1, int(counts.max()))
    bars = "".join(
        f'<rect x="{index * step:.1f}" y="{HEIGHT * (1 - count / top):.1f}" width="{step - 1:.1f}" '
        f'height="{HEIGHT * count / top:.1f}"><title>{edges[index]:.3f} to {edges[index + 1]:.3f}: {count}'
        "</title></rect>"
        for index, count in enumerate(counts.tolist())
    )
    ends = (
        f'<text x="0" y="{HEIGHT + 14}">{edges[0]:.3f}</text>'
        f'<text x="{WIDTH}" y="{HEIGHT + 14}" text-anchor="end">{edges[-1]:.3f}</text>'
    )
    return (
        f"<h2>{escape(line.figure)} ({escape(line.judge)})</h2>"
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT + 18}">{bars}{ends}</svg>'
    )
