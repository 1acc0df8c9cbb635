"""Rows to judge: recordings with their texts, from a manifest, a folder or a single file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any

from tts_core.audio.formats.names import READ
from tts_core.errors import UsageError, not_there
from tts_core.files.regular import opened

MANIFEST = "manifest.jsonl"


@dataclass(frozen=True)
class RecordingRow:
    """A recording. text: what it should say.  reference: a recording of the voice that it should have."""

    name: str
    audio: Path
    text: str | None = None
    reference: Path | None = None


def read_rows(source: Path, text: str | None = None, reference: Path | None = None) -> list[RecordingRow]:
    """Read a manifest (JSON lines as NeMo's: audio_filepath, text, and optionally id and ref_audio), a folder
    with a manifest.jsonl, as `mlx-port batch` writes it, a folder of recordings, each with its text in
    NAME.txt if there is one, or one recording.

    text: of a single recording.  reference: for rows without their own.
    Raises UsageError for a line or source that cannot be used, NotFoundError for a missing one.
    """
    if not source.exists():
        raise not_there("judge", source)
    if source.is_dir() and (source / MANIFEST).is_file():
        rows = list(_of_manifest(source / MANIFEST))
    elif source.is_dir():
        rows = list(_of_folder(source))
    elif source.suffix.lower() in READ:
        rows = [RecordingRow(source.name, source, text)]
    else:
        rows = list(_of_manifest(source))
    if text is not None and (len(rows) != 1 or rows[0].audio != source):
        raise UsageError("--text: only for a single recording; a manifest or folder contains the texts")
    if not rows:
        raise UsageError(f"judge: {source} contains no recordings ({', '.join(READ)})")
    return [RecordingRow(row.name, row.audio, row.text, row.reference or reference) for row in rows]


def _of_folder(folder: Path) -> Iterator[RecordingRow]:
    for path in sorted(folder.iterdir()):
        if path.suffix.lower() in READ:
            said = path.with_suffix(".txt")
            yield RecordingRow(path.name, path, said.read_text("utf-8").strip() if said.is_file() else None)


def _of_manifest(path: Path) -> Iterator[RecordingRow]:
    with opened(path) as file, BufferedReader(file) as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                yield _of_line(path, number, line)


def _of_line(path: Path, number: int, line: bytes) -> RecordingRow:
    where = f"judge: {path}, line {number}"
    try:
        fields: Any = json.loads(line)
    except (ValueError, RecursionError):
        raise UsageError(f"{where}: not JSON; expected an object with audio_filepath and text") from None
    if not isinstance(fields, dict) or not isinstance(fields.get("audio_filepath"), str):
        raise UsageError(f"{where}: audio_filepath is missing")
    for name in ("text", "ref_audio"):
        if not isinstance(fields.get(name), str | None):
            raise UsageError(f"{where}: {name} is not a string")
    sound, reference = fields["audio_filepath"], fields.get("ref_audio")
    name = str(fields.get("id", sound))
    return RecordingRow(
        name, path.parent / sound, fields.get("text"), path.parent / reference if reference else None
    )
