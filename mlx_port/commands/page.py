"""Parts of the pages that commands write: one HTML file each, which fetches nothing."""

from __future__ import annotations

import html
from collections.abc import Sequence

from tts_core.printable import one_line

STYLE = """
:root{color-scheme:light dark}
body{font:15px/1.5 system-ui,sans-serif;max-width:1100px;margin:2rem auto;padding:0 1rem}
h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}th,td{padding:.15rem .6rem;text-align:right}
th:first-child,td:first-child{text-align:left}tr{border-bottom:1px solid #8884}
svg{font:11px system-ui,sans-serif;fill:currentColor}.fail{color:#dc2626}
"""


def escape(text: str) -> str:
    """Text for a page: no tags of its own, no control characters."""
    return html.escape(one_line(text))


def document(title: str, style: str, body: str) -> str:
    """Build the whole page.

    title: plain text.
    style: CSS beside that of every page.
    body: HTML.
    """
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}{style}</style></head><body>{body}</body></html>\n"
    )


def table(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """Build a table from cells of HTML."""
    top = "".join(f"<th>{name}</th>" for name in head)
    rest = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in line) + "</tr>" for line in body)
    return f"<table><thead><tr>{top}</tr></thead><tbody>{rest}</tbody></table>"
