"""Folders with the record of a conversion."""

from __future__ import annotations

import json
from pathlib import Path

from tts_core.files.record import RECORD, Written


def record(folder: Path, *names: str) -> None:
    """Files of a conversion, and the record of them."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    written = {name: vars(Written.of(folder / name)) for name in names}
    (folder / RECORD).write_text(json.dumps({"written": written}))
