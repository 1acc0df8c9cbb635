"""The rows of a bulk run: from JSON lines, a text file, a folder of chapters, or seed-tts-eval's meta.lst."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from io import BufferedReader
from pathlib import Path
from typing import Any, NamedTuple

from tts_core.bulk.outcome import Outcome
from tts_core.errors import UsageError, did_you_mean, not_there
from tts_core.files.regular import opened
from tts_core.text.checks import check_characters
from tts_core.text.markdown import plain

FIELDS = ("id", "text", "voice", "ref_audio", "ref_text", "seed", "options")
CHAPTERS = (".txt", ".md")
LONGEST_ID = 100
STRAY = (
    8  # zero bytes at the beginning of a file, each the fault of its line; more are a file of another kind
)
LONGEST_TEXT = 1_000_000  # characters
_PIECE = 1 << 16  # bytes of a longer line that are skipped at a time
LONGEST_LINE = 16 << 20  # bytes; a character may be six in JSON


@dataclass(frozen=True)
class TextRow:
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


class Input(NamedTuple):
    """Rows and faults of a source.

    rows: valid rows.
    faults: outcomes of the others.
    origins: where each row of both is, by its number: "line 3", or the name of its file.
    """

    rows: list[TextRow]
    faults: list[Outcome]
    origins: dict[int, str]

    def first(self, count: int | None) -> Input:
        """Return the first rows, bad ones included; None returns all."""
        if count is None:
            return self
        rows = [row for row in self.rows if row.number < count]
        return Input(rows, [fault for fault in self.faults if fault.number < count], self.origins)


def read_rows(source: Path) -> Input:
    """Read all rows; each that cannot be used costs itself only.

    A .jsonl file has an object a line with `text` and any of FIELDS; meta.lst has
    "id|reference's text|reference|text"; another file has a text a line; a folder has a chapter a file
    (.txt; .md, without the marks of Markdown), in the order of the names.
    Raises NotFoundError for a missing source, UsageError for one without any row.
    """
    if not source.exists():
        raise not_there("batch", source)
    parse = _parsed_chapter if source.is_dir() else _PARSERS.get(source.suffix.lower(), _parsed_line)
    found, ids = Input([], [], {}), dict[str, str]()
    for number, (origin, text) in enumerate(_chapters(source) if source.is_dir() else _lines(source)):
        name, found.origins[number] = f"{number + 1:06d}", origin
        try:
            if isinstance(text, UsageError):
                raise text
            given = parse(origin, text)
            given = {**given, "id": name if given.get("id") is None else str(given["id"])}
            if _is_plain(given["id"]):
                name = given["id"]
            row = _row(number, given, source if source.is_dir() else source.parent)
            if row.id.lower() in ids:
                raise UsageError(f"the id {row.id!r} is that of {ids[row.id.lower()]}, too")
        except UsageError as error:
            found.faults.append(Outcome(number, "", name, error=str(error)))
        else:
            ids[row.id.lower()] = origin
            found.rows.append(row)
    if not found.origins:
        raise UsageError(f"batch: {source} contains no texts")
    return found


def _row(number: int, given: Mapping[str, Any], folder: Path) -> TextRow:
    """Check the fields of a row. folder: of relative names.  Raises UsageError."""
    for name in given:
        if name not in FIELDS:
            raise UsageError(f"unknown field {name!r:.40}; {did_you_mean(name, FIELDS) or ', '.join(FIELDS)}")
    for name in ("text", "voice", "ref_audio", "ref_text"):
        if not isinstance(given.get(name), str | None):
            raise UsageError(f"{name} is not a string")
        _check_length(given.get(name) or "")
    if given.get("text") is None:
        raise UsageError("text is missing")
    if not _is_plain(given["id"]):
        raise UsageError(
            f"id {given['id']!r:.100} cannot name a file; use letters, digits, dots, hyphens, underscores "
            f"and spaces, at most {LONGEST_ID} bytes"
        )
    seed, options = given.get("seed"), given.get("options", {})
    if not (seed is None or (type(seed) is int and 0 <= seed < 2**64)):
        raise UsageError(f"seed {seed!r:.40} is not a whole number in 0 .. 2**64 - 1")
    if not isinstance(options, dict):
        raise UsageError("options is not an object")
    if "seed" in options:
        raise UsageError("seed is a field of the row, beside text; options has none")
    sound = given.get("ref_audio")
    if given.get("voice") is not None and sound is not None:
        raise UsageError("give a voice or a ref_audio, not both")
    if sound is not None:
        check_characters("ref_audio", sound)  # a path with them is an error of Python
    return TextRow(
        number,
        given["id"],
        given["text"],
        voice=given.get("voice"),
        ref_audio=None if sound is None else str(folder / sound),
        ref_text=given.get("ref_text"),
        seed=seed,
        options=options,
    )


def _parsed_chapter(origin: str, text: str) -> dict[str, Any]:
    path = Path(origin)
    return {"id": path.stem, "text": plain(text) if path.suffix.lower() == ".md" else text}


def _parsed_line(origin: str, text: str) -> dict[str, Any]:
    return {"text": text}


def _parsed_meta(origin: str, text: str) -> dict[str, Any]:
    parts = text.split("|")
    if len(parts) not in (4, 5):
        raise UsageError(f"{len(parts)} fields; expected id|reference's text|reference|text")
    return dict(zip(("id", "ref_text", "ref_audio", "text"), parts, strict=False))


def _parsed_json(origin: str, text: str) -> dict[str, Any]:
    try:
        given: Any = json.loads(text)
    except (ValueError, RecursionError):
        raise UsageError('not JSON; expected an object such as {"text": "Hello."}') from None
    if not isinstance(given, dict):
        raise UsageError("not an object")
    return given


_PARSERS = {".jsonl": _parsed_json, ".lst": _parsed_meta}


def _chapters(folder: Path) -> Iterator[tuple[str, str | UsageError]]:
    """Yield the name of each chapter, and its text or its fault."""
    for path in sorted(path for path in folder.iterdir() if path.suffix.lower() in CHAPTERS):
        with opened(path) as file:
            yield path.name, _decoded(file.read(LONGEST_LINE + 1))


def _lines(path: Path) -> Iterator[tuple[str, str | UsageError]]:
    """Yield the place of each line, and its text or its fault; empty lines are skipped."""
    with opened(path) as file, BufferedReader(file) as lines:
        if lines.peek(_PIECE).count(b"\0") > STRAY:
            raise UsageError(
                f"batch: {path} is not a text file; give .jsonl, a text file or a folder of chapters"
            )
        for number, line in enumerate(iter(lambda: lines.readline(LONGEST_LINE + 1), b""), start=1):
            text = _decoded(line)
            if text:
                yield f"line {number}", text
            if len(line) > LONGEST_LINE:
                while line and not line.endswith(b"\n"):
                    line = lines.readline(_PIECE)


def _decoded(content: bytes) -> str | UsageError:
    if len(content) > LONGEST_LINE:
        return UsageError(f"more than {LONGEST_LINE >> 20} MB; split it")
    try:
        return content.decode("utf-8-sig").strip()
    except UnicodeDecodeError:
        return UsageError("not UTF-8; save it as UTF-8")


def _check_length(text: str) -> None:
    if len(text) > LONGEST_TEXT:
        raise UsageError(f"{len(text)} characters, at most {LONGEST_TEXT} are taken; split the text")


def _is_plain(name: str) -> bool:
    """Decide whether an id can name a file."""
    return re.fullmatch(r"[\w][\w .-]*", name) is not None and len(name.encode()) <= LONGEST_ID
