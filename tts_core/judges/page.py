"""The report of `mlx-port judge` as one HTML file with inline SVG plots; opening it fetches nothing."""

from __future__ import annotations

import html
from collections.abc import Sequence

import numpy as np

from tts_core.judges.judging import Judged, Summary
from tts_core.printable import one_line

WIDTH, HEIGHT, BINS = 420, 120, 24
STYLE = """
:root{color-scheme:light dark}
body{font:15px/1.5 system-ui,sans-serif;max-width:1100px;margin:2rem auto;padding:0 1rem}
h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}table{border-collapse:collapse;
font-variant-numeric:tabular-nums}th,td{padding:.15rem .6rem;text-align:right}
th:first-child,td:first-child{text-align:left}tr{border-bottom:1px solid #8884}
svg{font:11px system-ui,sans-serif;fill:currentColor}svg rect{fill:#2563eb}
.wide{overflow-x:auto}.fail{color:#dc2626}
"""


def page(title: str, found: Sequence[Judged], lines: Sequence[Summary]) -> str:
    """Build the document."""
    plots = "".join(_histogram(line, found) for line in lines)
    failed = "".join(
        f'<li class="fail">{_safe(one.row.name)}: {_safe(one.error)}</li>' for one in found if one.error
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>judge: {_safe(title)}</title><style>{STYLE}</style></head><body>"
        f"<h1>{_safe(title)}: {len(found)} recordings</h1>{_sums(lines)}<ul>{failed}</ul>{plots}"
        f"<h2>Recordings</h2><div class=wide>{_rows(found)}</div></body></html>\n"
    )


def _sums(lines: Sequence[Summary]) -> str:
    body = [
        (line.figure, line.judge, str(line.rows), f"{line.value:.3f}", f"{line.low:.3f} to {line.high:.3f}")
        for line in lines
    ]
    return _table(("figure", "judge", "recordings", "value", "95 %"), body)


def _rows(found: Sequence[Judged]) -> str:
    names = list(dict.fromkeys(name for one in found for name in one.figures))
    body = [
        (one.row.name, *(f"{one.figures[name]:.3f}" if name in one.figures else "" for name in names))
        for one in found
    ]
    return _table(("recording", *names), body)


def _histogram(line: Summary, found: Sequence[Judged]) -> str:
    values = [one.figures[line.figure] for one in found if line.figure in one.figures]
    counts, edges = np.histogram(values, bins=BINS)
    step, top = WIDTH / BINS, max(1, int(counts.max()))
    bars = "".join(
        f'<rect x="{place * step:.1f}" y="{HEIGHT * (1 - count / top):.1f}" width="{step - 1:.1f}" '
        f'height="{HEIGHT * count / top:.1f}"><title>{edges[place]:.3f} to {edges[place + 1]:.3f}: {count}'
        "</title></rect>"
        for place, count in enumerate(counts.tolist())
    )
    ends = (
        f'<text x="0" y="{HEIGHT + 14}">{edges[0]:.3f}</text>'
        f'<text x="{WIDTH}" y="{HEIGHT + 14}" text-anchor="end">{edges[-1]:.3f}</text>'
    )
    return (
        f"<h2>{_safe(line.figure)} ({_safe(line.judge)})</h2>"
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT + 18}">{bars}{ends}</svg>'
    )


def _table(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    top = "".join(f"<th>{_safe(name)}</th>" for name in head)
    rest = "".join("<tr>" + "".join(f"<td>{_safe(cell)}</td>" for cell in line) + "</tr>" for line in body)
    return f"<table><thead><tr>{top}</tr></thead><tbody>{rest}</tbody></table>"


def _safe(text: str | None) -> str:
    return html.escape(one_line(text or ""))
