"""Outcome of a row: a sound with the fields of its manifest line, or an error."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Outcome:
    """One spoken or failed row, as it travels from a worker to the writer.

    sound: the encoded file.
    fields: of the manifest, without the file's name.
    captions: SRT or VTT.
    """

    number: int
    key: str
    id: str
    sound: bytes = b""
    fields: dict[str, Any] = field(default_factory=dict)
    captions: str | None = None
    error: str | None = None
