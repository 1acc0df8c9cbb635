"""Zip files as torch.save writes them: one pickle, and a member per storage."""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path
from typing import NamedTuple

from converters.files.unpickle import LARGEST_PICKLE
from tts_core.errors import CheckpointError, SpeechError
from tts_core.files.regular import opened, reading

_MOST_MEMBERS = 100_000
_HEAD = struct.Struct("<4s22xHH")  # of a member: its mark, and the lengths of its name and of more facts


class Archive(NamedTuple):
    """A zip as torch.save writes it. begins, sizes: of storages by key, in bytes of the file."""

    pickle: bytes
    begins: dict[str, int]
    sizes: dict[str, int]


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
            start, begins, sizes = f"{folder}data/", {}, {}
            for name, member in members.items():
                begin = _begin(archive, member)
                if begin + member.file_size > archive.start_dir:
                    raise CheckpointError(f"{path}: corrupt: {name} reaches beyond the file's end")
                if name.startswith(start):
                    key = name.removeprefix(start)
                    begins[key], sizes[key] = begin, member.file_size
            return Archive(_content(archive, described), begins, sizes)
    except SpeechError:
        raise
    except Exception as fault:  # zipfile raises many kinds for a damaged directory
        line = next((line.strip() for line in str(fault).splitlines() if line.strip()), "")[:160]
        reason = f"{type(fault).__name__}: {line}" if line else type(fault).__name__
        raise CheckpointError(
            f"{path}: corrupt or truncated torch checkpoint ({reason}); fetch it again"
        ) from None


def _content(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    """Read a member and compare its checksum: a changed bit could swap two tensors of one shape."""
    if not member.CRC:  # saved without
        member.CRC = None  # pyright: ignore[reportAttributeAccessIssue]
    return archive.read(member)


def _begin(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> int:
    """Find the first byte of an uncompressed member's content, after its own header in the file."""
    assert archive.fp is not None
    archive.fp.seek(member.header_offset)
    head = archive.fp.read(_HEAD.size)
    mark, name, extra = _HEAD.unpack(head)
    if mark != b"PK\x03\x04":
        raise zipfile.BadZipFile(f"no header of {member.filename}")
    return member.header_offset + _HEAD.size + name + extra


def is_zip(path: Path) -> bool:
    """Return True if a file begins as a zip."""
    with opened(path) as file:
        return file.read(4) == b"PK\x03\x04"
