"""Keys of rows: a row with another text, option, reference, model, dtype or side has another key."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from tts_core.bulk.rows import TextRow
from tts_core.files.record import RECORD, Written


def row_key(row: TextRow, run: Mapping[str, Any]) -> str:
    """Hash a row to 32 hex digits. run: values of all rows, as the model's hash and the dtype.

    Raises the errors of reading its reference.
    """
    said = {
        "id": row.id,
        "text": row.text,
        "voice": row.voice,
        "reference": None if row.ref_audio is None else file_hash(Path(row.ref_audio)),
        "ref_text": row.ref_text,
        "seed": row.seed,
        "options": dict(row.options),
        "run": dict(run),
    }
    content = json.dumps(said, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(content.encode()).hexdigest()[:32]


def seeded(row: TextRow, key: str) -> TextRow:
    """Give a row without a seed one from its key."""
    return row if row.seed is not None else replace(row, seed=int(key[:15], 16))


@lru_cache(maxsize=4096)
def file_hash(path: Path) -> str:
    """Hash a file's content. Raises as `tts_core.files.regular.opened`."""
    return Written.of(path).sha256


def model_hash(model: Path) -> str:
    """Hash a model: a converted folder's record, which has the hash of every file; else all files."""
    record = model / RECORD
    if record.is_file():
        return file_hash(record)
    files = [model] if model.is_file() else sorted(path for path in model.rglob("*") if path.is_file())
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.name} {file_hash(path)}\n".encode())
    return digest.hexdigest()
