"""A path that is not there, and the name in its folder that was probably meant."""

from __future__ import annotations

import difflib
import os
from pathlib import Path

from tts_core.errors import NotFoundError


def not_there(what: str, path: str | os.PathLike[str]) -> NotFoundError:
    """The error for a missing `path`, naming the nearest name beside it, or the folder that is missing too.

    what: the file or flag, as the message should call it.
    """
    path = Path(path)
    folder = path.parent
    if not folder.is_dir():
        return NotFoundError(f"{what}: {path} is not there; neither is the folder {folder}")
    try:
        names = os.listdir(folder)
    except OSError:
        names = []
    close = difflib.get_close_matches(path.name, names, n=1)
    return NotFoundError(
        f"{what}: {path} is not there" + (f"; did you mean {folder / close[0]}?" if close else "")
    )
