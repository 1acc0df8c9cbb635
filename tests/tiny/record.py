"""Converted folders that a test changes and that should look as if the conversion had written them so."""

import json
from pathlib import Path

from tts_core.files.record import RECORD, Written


def record_again(folder: Path) -> None:
    """Sizes and hashes of all files on record, as they are now; a file that has gone stays on record."""
    path = folder / RECORD
    content = json.loads(path.read_text())
    for name in content["written"]:
        if (folder / name).is_file():
            content["written"][name] = vars(Written.of(folder / name))
    path.write_text(json.dumps(content))
