"""Parts of the pages that commands write: one HTML file each, which fetches nothing."""

from __future__ import annotations

import html
from collections.abc import Sequence

from tts_core.printable import one_line


def escape(text: str) -> str:
    """Text for a page: no tags of its own, no control characters."""
    return html.escape(one_line(text))


def document(title: str, style: str, body: str) -> str:
    """Build the whole page.

    title: plain text.
    style: CSS.
    body: HTML.
    """
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{style}</style></head><body>{body}</body></html>\n"
    )


def table(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """Build a table from cells of HTML."""
    top = "".join(f"<th>{name}</th>" for name in head)
    rest = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in line) + "</tr>" for line in body)
    return f"<table><thead><tr>{top}</tr></thead><tbody>{rest}</tbody></table>"
