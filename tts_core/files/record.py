"""The record of a converted folder: every file that the conversion wrote, with its size and sha256.

It is in conversion.json. Weights are read from the files on record only: another safetensors file beside them
is refused by its name.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tts_core.errors import CheckpointError, NotFoundError
from tts_core.files.json_object import read_json
from tts_core.files.regular import identity, opened, reading

RECORD = "conversion.json"
CARD = "README.md"
WEIGHTS = ".safetensors"
MISSING = "it is missing, a part of the model; convert again"
_PIECE = 1 << 20  # bytes hashed at a time


@dataclass(frozen=True)
class Written:
    """Size in bytes and hash of one file."""

    bytes: int
    sha256: str  # hexadecimal

    @classmethod
    def of(cls, path: Path) -> Written:
        """Measure a file. Raises what `tts_core.files.regular.opened` raises."""
        digest, piece, size = hashlib.sha256(), bytearray(_PIECE), 0
        with opened(path) as file:
            while count := file.readinto(piece):  # pyright: ignore[reportAttributeAccessIssue]
                digest.update(memoryview(piece)[:count])
                size += count
        return cls(size, digest.hexdigest())


@dataclass(frozen=True)
class Record:
    """The files of a converted folder. files: path inside the folder, with slashes → as it was written."""

    folder: Path
    files: Mapping[str, Written]

    @classmethod
    def read(cls, folder: Path) -> Record:
        """Read a folder's conversion.json.

        Raises NotFoundError where there is none, CheckpointError for one that does not list the files.
        """
        path = folder / RECORD
        try:
            content = read_json(path)
        except FileNotFoundError:
            raise NotFoundError(f"{path}: {MISSING}") from None
        return cls(folder, _files(path, content.get("written")))

    def parts(self) -> list[str]:
        """List the folders of all parts, "" for the root."""
        return list(dict.fromkeys(map(_folder, self.files)))

    def check_sizes(self) -> None:
        """Raise NotFoundError or CheckpointError unless every file but the card is there, of its size."""
        for name in self.files:
            if name != CARD:
                self._check_size(name)

    def weights(self, part: str) -> list[Path]:
        """The safetensors files of a part, each there and of its size.

        part: its folder's name inside the model's, "" for the root.
        Raises NotFoundError for a missing file; CheckpointError for another size, and for a safetensors file
        that is not on record.
        """
        folder = self.folder / part
        known = [name for name in self.files if name.endswith(WEIGHTS) and _folder(name) == part]
        if not known:
            raise NotFoundError(f"{self.folder / RECORD}: no weights for {folder} on record; convert again")
        with reading(folder):
            there = {name for name in os.listdir(folder) if name.endswith(WEIGHTS) and name[0] != "."}
            stray = sorted(there - set(map(_name, known)))
        if stray:
            more = f" and {len(stray) - 3} more" if len(stray) > 3 else ""
            raise CheckpointError(
                f"{folder}: {', '.join(stray[:3])}{more}: not on record in {RECORD}; move it elsewhere"
            )
        for name in known:
            self._check_size(name)
        return [self.folder / name for name in known]

    def changed(self, parts: Collection[str]) -> list[str]:
        """List the files of some parts whose bytes are not those that were written; not the model card.

        Raises NotFoundError for a missing file.
        """
        return [
            name
            for name, expected in self.files.items()
            if _folder(name) in parts and name != CARD and not self._is(name, expected)
        ]

    def check(self, parts: Collection[str]) -> None:
        """Raise CheckpointError if any file of some parts changed since the conversion."""
        if changed := self.changed(parts):
            raise CheckpointError(
                f"{self.folder}: {', '.join(changed)}: changed since the conversion (sha256 in {RECORD}); "
                "convert again"
            )

    def _is(self, name: str, expected: Written) -> bool:
        """Compare the sizes first: a file may be of any."""
        path = self.folder / name
        try:
            return identity(path).size == expected.bytes and Written.of(path) == expected
        except FileNotFoundError:
            raise NotFoundError(f"{self.folder / name}: {MISSING}") from None

    def _check_size(self, name: str) -> None:
        path, expected = self.folder / name, self.files[name].bytes
        try:
            size = path.stat().st_size
        except FileNotFoundError:
            raise NotFoundError(f"{path}: {MISSING}") from None
        if path.is_file() and size != expected:
            raise CheckpointError(f"{path}: {size} bytes, on record are {expected}; convert again")


def _files(path: Path, given: object) -> dict[str, Written]:
    if not isinstance(given, dict) or not given:
        raise CheckpointError(f"{path}: it does not list the files that were written; convert again")
    files = {}
    for name, entry in given.items():
        parts = name.split("/")
        plain = len(parts) <= 2 and all(part not in ("", ".", "..") for part in parts) and "\\" not in name
        entry = entry if isinstance(entry, dict) else {}
        size: Any = entry.get("bytes")
        digest = str(entry.get("sha256"))
        whole = type(size) is int and 0 <= size < 2**63
        if not (plain and whole and re.fullmatch("[0-9a-f]{64}", digest)):
            raise CheckpointError(f"{path}: its entry for {name[:80]} is no size and sha256; convert again")
        files[name] = Written(size, digest)
    return files


def _folder(name: str) -> str:
    return name.rpartition("/")[0]


def _name(name: str) -> str:
    return name.rpartition("/")[2]
