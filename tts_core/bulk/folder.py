"""The output folder of a bulk run, with a lock, fixed settings, and manifests from which a run resumes.

    audio/ID.flac      sounds
    captions/ID.srt    with --captions
    manifest.jsonl     a line a row in the order of the input, once a run has ended
    errors.jsonl       rows that failed in the last run, with their reasons
    .work/             settings, locks, and each writer's own manifest

A sound is complete before its line is written, so a killed run loses the rows in flight and nothing else.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tts_core.bulk.outcome import Outcome
from tts_core.errors import CheckpointError, UsageError
from tts_core.files.json_object import read_json
from tts_core.files.whole import append, whole_file
from tts_core.printable import json_text

NO_ORIGINS: Mapping[int, str] = MappingProxyType({})
SETTINGS, MANIFEST, ERRORS = "settings.json", "manifest.jsonl", "errors.jsonl"


class OutputFolder:
    """One writer's view of the folder; it is `part` of `parts` writers, each with its own rows.

    settings: compared with those that the folder was begun with.
    suffix: of sounds, with its dot.
    captions: "srt", "vtt" or None.
    After `finish`, `rejected` has the manifest's lines of rows that are not accepted.
    Raises UsageError if another run has the folder, if it has other settings, if it cannot be made, or if
    something that is written in it is a symbolic link. The folder itself may be one.
    """

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, Any],
        *,
        suffix: str,
        captions: str | None = None,
        part: int = 0,
        parts: int = 1,
    ):
        self.folder, self.suffix, self.captions = folder, suffix, captions
        self.work, self.audio = folder / ".work", folder / "audio"
        self._open = ExitStack()
        _make([self.work, self.audio, *([] if captions is None else [folder / "captions"])])
        _check_links([self.work / SETTINGS, *self.work.glob("manifest-*.jsonl")])
        self._name = f"manifest-{part}-of-{parts}.jsonl"
        with ExitStack() as refused:  # nobody else has to wait for a folder that this writer cannot use
            refused.callback(self._open.close)
            self._lock(part, parts)
            self._check_settings(settings)
            self.done = {line["key"] for line in self._recorded()}
            refused.pop_all()
        self._manifest = self.work / self._name
        self._manifest.touch()
        self._end = self._manifest.stat().st_size
        self.rejected: list[dict[str, Any]] = []
        self._errors: list[Outcome] = []

    def __enter__(self) -> OutputFolder:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def write(self, outcome: Outcome) -> None:
        """Write a sound and its line, or keep an error for the end.

        Raises OSError if the disk refuses; nothing of the row is then left that a later run would miss.
        """
        if outcome.error is not None:
            self._errors.append(outcome)
            return
        self._record(outcome, self._write_file(outcome))

    def finish(self, keys: Mapping[str, int], origins: Mapping[int, str] = NO_ORIGINS) -> int:
        """Write the manifest of all writers' rows, and this run's errors; return the rows of the manifest.

        keys: of the input's rows, with their numbers: rows that are no longer in the input are left out.
        origins: of rows in the input, by their numbers, for the errors.
        """
        lines = {line["key"]: line for line in self._recorded() if line["key"] in keys}
        ordered = sorted(lines.values(), key=lambda line: keys[line["key"]])
        for line in ordered:
            del line["number"]
        self.rejected = [line for line in ordered if line.get("accepted") is False]
        _replace(self.folder / MANIFEST, b"".join(map(_encoded, ordered)))
        failed = [
            {"id": error.id, "number": error.number, "place": origins.get(error.number), "error": error.error}
            for error in self._errors
        ]
        errors = self.folder / ERRORS
        if failed:
            _replace(errors, b"".join(map(_encoded, failed)))
        else:
            errors.unlink(missing_ok=True)
        return len(ordered)

    def _record(self, outcome: Outcome, sound: str) -> None:
        """Write captions and the manifest's line. sound: its path from the folder."""
        if outcome.captions is not None:
            _replace(self.folder / "captions" / f"{outcome.id}.{self.captions}", outcome.captions.encode())
        line = {"audio_filepath": sound, **outcome.fields, "key": outcome.key}
        content = _encoded({"number": outcome.number, **line})
        append(self._manifest, content, self._end)
        self._end += len(content)
        self.done.add(outcome.key)

    def _write_file(self, outcome: Outcome) -> str:
        name = f"{outcome.id}{self.suffix}"
        _replace(self.audio / name, outcome.sound)
        return f"audio/{name}"

    def _recorded(self) -> Iterator[dict[str, Any]]:
        """Yield the complete lines of all writers' manifests; one broken off by a kill is not a line."""
        for path in sorted(self.work.glob("manifest-*.jsonl")):
            content = path.read_bytes()
            whole, _, torn = content.rpartition(b"\n")
            if torn and path.name == self._name:
                os.truncate(path, len(whole) + bool(whole))
            for line in whole.splitlines():
                try:
                    yield json.loads(line)
                except ValueError:
                    raise CheckpointError(f"{path}: a line is not JSON; the folder is damaged") from None

    def _lock(self, part: int, parts: int) -> None:
        """Lock the folder: exclusively, or as one of several parts of one division."""
        _check_links([self.work / f"lock-{part}", self.work / "lock"])
        own = self._open.enter_context(open(self.work / f"lock-{part}", "w", opener=_own))  # noqa: SIM115
        whole = self._open.enter_context(open(self.work / "lock", "a+", opener=_own))  # noqa: SIM115
        try:
            fcntl.flock(own, fcntl.LOCK_EX | fcntl.LOCK_NB)
            try:
                fcntl.flock(whole, fcntl.LOCK_EX | fcntl.LOCK_NB)
                whole.truncate(0)
                whole.write(str(parts))
                whole.flush()
            except BlockingIOError:
                pass
            fcntl.flock(whole, fcntl.LOCK_SH | fcntl.LOCK_NB)
            whole.seek(0)
            if whole.read() != str(parts):
                raise BlockingIOError
        except BlockingIOError:
            self._open.close()
            raise UsageError(
                f"batch: another run is writing to {self.folder}; wait for it, or stop it"
            ) from None

    def _check_settings(self, settings: Mapping[str, Any]) -> None:
        path = self.work / SETTINGS
        plain = json.loads(json_text(dict(settings)))
        if not path.exists():
            _replace(path, (json_text(plain) + "\n").encode())
            return
        begun = read_json(path)
        if names := [name for name in {**begun, **plain} if begun.get(name) != plain.get(name)]:
            changes = [f"{name} {begun.get(name)!r}, now {plain.get(name)!r}" for name in names]
            self._open.close()
            raise UsageError(
                f"batch: {self.folder} has other settings ({'; '.join(changes)}); give the same settings, or "
                "another --out"
            )


def _encoded(line: Mapping[str, Any]) -> bytes:
    return (json_text(dict(line), indent=None) + "\n").encode()


def _replace(path: Path, content: bytes) -> None:
    """Write a file that appears whole or not at all, and is on the disk then."""
    with whole_file(path, 0o644) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _check_links(paths: Iterable[Path]) -> None:
    """Raise UsageError for a link inside the output folder: a run writes to nothing outside it."""
    for path in paths:
        if path.is_symlink():
            raise UsageError(f"--out: {path} is a symbolic link; remove it, or give another folder")


def _own(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o644)


def _make(folders: Iterable[Path]) -> None:
    for folder in folders:
        _check_links([folder])
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise UsageError(
                f"--out: {folder} cannot be made ({error.strerror}); give another folder"
            ) from None
