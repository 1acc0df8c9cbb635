"""Zip files as torch.save writes them: one pickle, and a member per storage."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from converters.files.pickle_bounds import LARGEST_PICKLE
from tts_core.errors import CheckpointError, NotFoundError, SpeechError
from tts_core.files.regular import opened, reading

_MOST_MEMBERS = 100_000


@dataclass(frozen=True)
class Archive:
    """A zip as torch.save writes it. storages: key → bytes."""

    pickle: bytes
    storages: dict[str, int]


def read_archive(path: Path) -> Archive:
    """Open a zip as torch.save writes it: every member once, uncompressed, in one folder, inside the file.

    Storages are read in place. Raises CheckpointError for any other zip.
    """
    try:
        with reading(path), zipfile.ZipFile(path) as archive:
            members = {member.filename: member for member in archive.infolist()}
            if len(members) != len(archive.infolist()) or len(members) != len({*map(str.lower, members)}):
                raise CheckpointError(f"{path}: corrupt: it contains the same member twice")
            if len(members) > _MOST_MEMBERS:
                raise CheckpointError(f"{path}: {len(members)} members; at most {_MOST_MEMBERS} are read")
            first = next(iter(members)).partition("/")[0]
            if f"{first}/constants.pkl" in members and any(n.startswith(f"{first}/code/") for n in members):
                raise CheckpointError(
                    f"{path}: a TorchScript program, which is code and not weights; load it with "
                    "torch.jit.load and save its state_dict with torch.save"
                )
            if any(member.compress_type != zipfile.ZIP_STORED for member in members.values()):
                raise CheckpointError(
                    f"{path}: it was compressed after saving, which torch does not do; unpack and resave it"
                )
            folder = f"{first}/"
            described = members.get(f"{folder}data.pkl")
            if described is None:
                raise CheckpointError(
                    f"{path}: a zip file, but not one that torch.save wrote (no data.pkl in its first folder)"
                )
            if described.file_size > LARGEST_PICKLE:
                raise CheckpointError(
                    f"{path}: its data.pkl takes {described.file_size} bytes, too many for a model's"
                )
            order = members.get(f"{folder}byteorder")
            if order is not None and (order.file_size > 6 or _content(archive, order) != b"little"):
                raise CheckpointError(
                    f"{path}: its numbers are not little-endian; resave it on another machine"
                )
            _content(archive, described)
            end, start = archive.start_dir, f"{folder}data/"
            storages = {}
            for name, member in members.items():
                if member.header_offset + 30 + len(name) + member.file_size > end:
                    raise CheckpointError(f"{path}: corrupt: {name} reaches beyond the file's end")
                if name.startswith(start):
                    storages[name.removeprefix(start)] = member.file_size
            # as torch.load finds it: two readers of a damaged zip may not agree
            with utf8_name(path) as name:
                content = import_torch(path)._C.PyTorchFileReader(name).get_record("data.pkl")
    except SpeechError:
        raise
    except Exception as fault:  # zipfile and torch raise many kinds for a damaged directory
        raise CheckpointError(
            f"{path}: corrupt or truncated torch checkpoint ({reason_of(fault)}); fetch it again"
        ) from None
    return Archive(content, storages)


def _content(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    """Read a member and compare its checksum: a changed bit could swap two tensors of one shape."""
    if not member.CRC:  # saved without
        member.CRC = None  # pyright: ignore[reportAttributeAccessIssue]
    return archive.read(member)


def is_zip(path: Path) -> bool:
    """Return True if a file begins as a zip."""
    with opened(path) as file:
        return file.read(4) == b"PK\x03\x04"


@contextmanager
def utf8_name(path: Path) -> Iterator[str]:
    """Name a file so that torch can open it, which takes UTF-8 only."""
    name = os.fspath(path)
    try:
        name.encode()
    except UnicodeEncodeError:
        with open(path, "rb") as file:
            yield f"/dev/fd/{file.fileno()}"
    else:
        yield name


def import_torch(path: Path) -> Any:
    """Import PyTorch. Raises NotFoundError naming the file if it is not installed."""
    try:
        import torch
    except ImportError:
        raise NotFoundError(
            f"{path}: reading a pickle needs PyTorch, which is not installed; pip install 'mlx-port[torch]'"
        ) from None
    return torch


def reason_of(fault: Exception) -> str:
    """Name an exception's kind, and its text where it has one."""
    line = first_line(str(fault))
    return f"{type(fault).__name__}: {line}" if line else type(fault).__name__


def first_line(text: str) -> str:
    """Return the first line that is not empty, cut to 160 characters."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")[:160]
