"""JSON objects out of files that are not trusted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn

from tts_core.errors import CheckpointError
from tts_core.files.regular import LARGEST_TEXT, read_text


def read_json(path: Path, most: int = LARGEST_TEXT) -> dict[str, Any]:
    """Read a JSON object of at most `most` bytes; numbers are finite.

    Raises CheckpointError, naming the file, for one that is too large, not UTF-8, not JSON or nested too
    deeply, and for another value than an object.
    """
    return parse_json(read_text(path, most), str(path))


def parse_json(text: str, where: str) -> dict[str, Any]:
    """Read a JSON object out of a text; numbers are finite. Raises CheckpointError as `read_json`.

    where: the file that the text is from, for the errors.
    """
    try:
        content = json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError) as fault:
        raise CheckpointError(f"{where}: not readable as JSON: {fault}") from None
    if not isinstance(content, dict):
        raise CheckpointError(f"{where}: not a JSON object")
    return content


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a number in JSON")


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"{text[:40]} is too large a number")
    return value
