"""The rows of a bulk run: from JSON lines, a text file, a folder of chapters, or seed-tts-eval's meta.lst."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from io import BufferedReader
from pathlib import Path
from typing import Any

from tts_core.errors import UsageError, did_you_mean, not_there
from tts_core.files.regular import opened

FIELDS = ("id", "text", "voice", "ref_audio", "ref_text", "seed", "options")
CHAPTERS = (".txt", ".md")
LONGEST_ID = 100
LONGEST_TEXT = 1_000_000  # characters
LONGEST_LINE = 16 << 20  # bytes; a character may be six in JSON


@dataclass(frozen=True)
class Row:
    """One text to speak.

    number: its place in the input, from 0.
    voice: name of a stored voice.
    options: changes of the run's.
    ref_audio, ref_text: a recording of the voice to use, and its transcript.
    """

    number: int
    id: str
    text: str
    voice: str | None = None
    ref_audio: str | None = None
    ref_text: str | None = None
    seed: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


def read_rows(source: Path) -> list[Row]:
    """Read all rows.

    A .jsonl file has an object a line with `text` and any of FIELDS; meta.lst has
    "id|reference's text|reference|text"; another file has a text a line; a folder has a chapter a file
    (.txt, .md), in the order of the names.
    Raises NotFoundError for a missing source, UsageError naming the line that cannot be used, also for a text
    of more than LONGEST_TEXT characters, and for two rows of one id.
    """
    if not source.exists():
        raise not_there("batch", source)
    read = _of_chapters if source.is_dir() else _READERS.get(source.suffix.lower(), _of_lines)
    rows = list(read(source))
    if not rows:
        raise UsageError(f"batch: {source} contains no texts")
    _check_ids(source, rows)
    return rows


def _of_chapters(folder: Path) -> Iterator[Row]:
    paths = sorted(path for path in folder.iterdir() if path.suffix.lower() in CHAPTERS)
    for number, path in enumerate(paths):
        with opened(path) as file:
            content = file.read(LONGEST_LINE + 1)
        if len(content) > LONGEST_LINE:
            raise UsageError(f"batch: {path}: more than {LONGEST_LINE >> 20} MB; split it")
        text = _decoded(path, content).strip()
        _check_length(f"batch: {path}", text)
        yield Row(number, path.stem, text)


def _of_lines(path: Path) -> Iterator[Row]:
    for number, (at, line) in enumerate(_lines(path)):
        _check_length(at, line)
        yield Row(number, f"{number + 1:06d}", line)


def _of_meta(path: Path) -> Iterator[Row]:
    for number, (at, line) in enumerate(_lines(path)):
        parts = line.split("|")
        if len(parts) not in (4, 5):
            raise UsageError(f"{at}: {len(parts)} fields; expected id|reference's text|reference|text")
        name, said, sound, text = parts[:4]
        _check_length(at, text)
        _check_length(at, said)
        yield Row(number, name, text, ref_audio=str(path.parent / sound), ref_text=said)


def _of_json(path: Path) -> Iterator[Row]:
    for number, (at, line) in enumerate(_lines(path)):
        try:
            given: Any = json.loads(line)
        except (ValueError, RecursionError):
            raise UsageError(f'{at}: not JSON; expected an object such as {{"text": "Hello."}}') from None
        if not isinstance(given, dict):
            raise UsageError(f"{at}: not an object")
        yield _parsed(path, at, number, given)


def _parsed(path: Path, at: str, number: int, given: Mapping[str, Any]) -> Row:
    for name in given:
        if name not in FIELDS:
            raise UsageError(
                f"{at}: unknown field {name!r}; {did_you_mean(name, FIELDS) or ', '.join(FIELDS)}"
            )
    for name in ("text", "voice", "ref_audio", "ref_text"):
        if not isinstance(given.get(name), str | None):
            raise UsageError(f"{at}: {name} is not a string")
    if given.get("text") is None:
        raise UsageError(f"{at}: text is missing")
    _check_length(at, given["text"])
    _check_length(at, given.get("ref_text") or "")
    seed, options = given.get("seed"), given.get("options", {})
    if not (seed is None or (type(seed) is int and 0 <= seed < 2**64)):
        raise UsageError(f"{at}: seed {seed!r} is not a whole number in 0 .. 2**64 - 1")
    if not isinstance(options, dict):
        raise UsageError(f"{at}: options is not an object")
    if given.get("voice") is not None and given.get("ref_audio") is not None:
        raise UsageError(f"{at}: give a voice or a ref_audio, not both")
    sound = given.get("ref_audio")
    return Row(
        number,
        str(given.get("id", f"{number + 1:06d}")),
        given["text"],
        voice=given.get("voice"),
        ref_audio=None if sound is None else str(path.parent / sound),
        ref_text=given.get("ref_text"),
        seed=seed,
        options=options,
    )


_READERS = {".jsonl": _of_json, ".lst": _of_meta}


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    """Yield where each line is, for messages, and its text; empty lines are left out."""
    with opened(path) as file, BufferedReader(file) as lines:
        for number, line in enumerate(iter(lambda: lines.readline(LONGEST_LINE + 1), b""), start=1):
            if len(line) > LONGEST_LINE:
                raise UsageError(f"batch: {path}, line {number}: more than {LONGEST_LINE >> 20} MB; split it")
            text = _decoded(path, line).strip()
            if text:
                yield f"batch: {path}, line {number}", text


def _check_length(at: str, text: str) -> None:
    if len(text) > LONGEST_TEXT:
        raise UsageError(f"{at}: {len(text)} characters, at most {LONGEST_TEXT} are taken; split the text")


def _decoded(path: Path, content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"batch: {path} is not UTF-8; save it as UTF-8") from None


def _check_ids(source: Path, rows: list[Row]) -> None:
    """An id names a file: it is plain, and there once."""
    seen: dict[str, int] = {}
    for row in rows:
        if not re.fullmatch(r"[\w][\w .-]*", row.id) or len(row.id.encode()) > LONGEST_ID:
            raise UsageError(
                f"batch: {source}: id {row.id!r} of row {row.number + 1} cannot name a file; use letters, "
                f"digits, dots, hyphens, underscores and spaces, at most {LONGEST_ID} bytes"
            )
        folded = row.id.lower()
        if folded in seen:
            raise UsageError(
                f"batch: {source}: rows {seen[folded] + 1} and {row.number + 1} have the id {row.id!r}"
            )
        seen[folded] = row.number
