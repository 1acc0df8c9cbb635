"""Files that torch.save wrote: a zip with one pickle and a member per storage, or what torch < 1.6 wrote.

Storages are found, not read, and nothing of a file is run (tts_core/files/unpickle.py).
"""

from __future__ import annotations

import io
import struct
import zipfile
from typing import Any, NamedTuple

from tts_core.errors import CheckpointError
from tts_core.files.bounded import BoundedReader
from tts_core.files.unpickle import (
    LARGEST_PICKLE,
    PROTOCOLS,
    SAVE_AGAIN,
    Storage,
    Unpickled,
    other_protocol,
    unpickle,
)

_MOST_MEMBERS = 100_000
_MEMBER = struct.Struct("<4s22xHH")  # its mark, and the lengths of its name and of more facts

# of torch < 1.6: two pickles, of a number and of the format's version; only the protocol's number differs
_MAGIC = b"\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."
_HEADS = {bytes([0x80, number]) + _MAGIC + bytes([0x80, number]) + b"M\xe9\x03." for number in PROTOCOLS}
_HEAD_LENGTH = len(min(_HEADS))
_TEXT_MAGIC = b"L119547037146038801333356L"  # as protocols 0 and 1 write the number
_NEW = 40  # bytes in which later protocols write it
_TAR, _TAR_AT = b"ustar", 257


class TorchFile(NamedTuple):
    """The contents of a file, as of Unpickled. begins: first byte of each storage, by key."""

    content: Any
    begins: dict[str, int]
    has_nodes: bool


def read_torch_file(file: BoundedReader) -> TorchFile:
    """Read what torch.save wrote, but for the numbers of its storages, which are all in the file.

    Raises CheckpointError for any other file, with what it is.
    """
    is_zip = file.read(4) == b"PK\x03\x04"
    file.seek(0)
    archive = _read_archive(file) if is_zip else None
    try:
        if archive is None:
            pickled, begins = _read_old(file)
        else:
            pickled, begins = unpickle(archive.pickle), archive.begins
            _check_storages(pickled.storages, archive.sizes)
    except CheckpointError as fault:
        raise CheckpointError(f"{fault}; nothing of it was run") from None
    except (ValueError, IndexError) as fault:
        raise CheckpointError(
            f"refused: damaged, or not a pickle of tensors ({fault}); nothing of it was run"
        ) from None
    return TorchFile(pickled.content, begins, pickled.has_nodes)


class _Archive(NamedTuple):
    """A zip as torch.save writes it. begins, sizes: of storages by key, in bytes of the file."""

    pickle: bytes
    begins: dict[str, int]
    sizes: dict[str, int]


def _read_archive(file: BoundedReader) -> _Archive:
    """Open a zip as torch.save writes it: every member once, uncompressed, in one folder, inside the file."""
    try:
        with zipfile.ZipFile(file) as archive:
            return _storages(archive)
    except CheckpointError:
        raise
    except Exception as fault:  # zipfile raises many kinds for a damaged directory
        line = next((line.strip() for line in str(fault).splitlines() if line.strip()), "")[:160]
        reason = f"{type(fault).__name__}: {line}" if line else type(fault).__name__
        raise CheckpointError(f"corrupt or truncated torch checkpoint ({reason}); fetch it again") from None


def _storages(archive: zipfile.ZipFile) -> _Archive:
    members = {member.filename: member for member in archive.infolist()}
    if len(members) != len(archive.infolist()) or len(members) != len({*map(str.lower, members)}):
        raise CheckpointError("corrupt: it contains the same member twice")
    if len(members) > _MOST_MEMBERS:
        raise CheckpointError(f"{len(members)} members; at most {_MOST_MEMBERS} are read")
    folder = next(iter(members)).partition("/")[0]
    if f"{folder}/constants.pkl" in members and any(name.startswith(f"{folder}/code/") for name in members):
        raise CheckpointError(
            "a TorchScript program, which is code and not weights; load it with torch.jit.load and save its "
            "state_dict with torch.save"
        )
    if any(member.compress_type != zipfile.ZIP_STORED for member in members.values()):
        raise CheckpointError("it was compressed after saving, which torch does not do; unpack and resave it")
    described = members.get(f"{folder}/data.pkl")
    if described is None:
        raise CheckpointError(
            "a zip file, but not one that torch.save wrote (no data.pkl in its first folder)"
        )
    if described.file_size > LARGEST_PICKLE:
        raise CheckpointError(f"its data.pkl takes {described.file_size} bytes, too many for a model's")
    order = members.get(f"{folder}/byteorder")
    if order is not None and (order.file_size > 6 or _content(archive, order) != b"little"):
        raise CheckpointError("its numbers are not little-endian; resave it on another machine")
    begins, sizes = {}, {}
    for name, member in members.items():
        begin = _begin(archive, member)
        if begin + member.file_size > archive.start_dir:
            raise CheckpointError(f"corrupt: {name} reaches beyond the file's end")
        if name.startswith(f"{folder}/data/"):
            key = name.removeprefix(f"{folder}/data/")
            begins[key], sizes[key] = begin, member.file_size
    return _Archive(_content(archive, described), begins, sizes)


def _content(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    """Read a member and compare its checksum: a changed bit could swap two tensors of one shape."""
    if not member.CRC:  # saved without
        member.CRC = None  # pyright: ignore[reportAttributeAccessIssue]
    return archive.read(member)


def _begin(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> int:
    """Find the first byte of an uncompressed member's content, after its own head in the file."""
    assert archive.fp is not None
    archive.fp.seek(member.header_offset)
    mark, name, extra = _MEMBER.unpack(archive.fp.read(_MEMBER.size))
    if mark != b"PK\x03\x04":
        raise zipfile.BadZipFile(f"no head of {member.filename}")
    return member.header_offset + _MEMBER.size + name + extra


def _check_storages(storages: dict[str, Storage], sizes: dict[str, int]) -> None:
    """Raise CheckpointError unless the members have the sizes that the pickle says."""
    for key, storage in storages.items():
        held = sizes.get(key)
        if held != storage.nbytes:
            found = "is missing" if held is None else f"has {held} bytes, not {storage.nbytes}"
            raise CheckpointError(f"corrupt: storage {key} {found}; fetch it again")


def _read_old(file: BoundedReader) -> tuple[Unpickled, dict[str, int]]:
    """Read a file of torch < 1.6: pickles of the machine, of the tensors and of the storages' order."""
    _read_head(file)
    start = file.tell()
    size = file.seek(0, io.SEEK_END)
    file.seek(start)
    _, pickled, order = unpickle(file), unpickle(file), unpickle(file)
    if sum(storage.nbytes for storage in pickled.storages.values()) > size:
        raise CheckpointError(f"truncated: its storages take more than {size} bytes; fetch it again")
    keys = order.content if isinstance(order.content, list) else []
    if not all(isinstance(key, str) for key in keys) or {*keys} != pickled.storages.keys():
        raise CheckpointError("corrupt: its storages are not those of its tensors; fetch it again")
    begins, at = {}, file.tell()
    for key in keys:
        storage = pickled.storages[key]
        file.seek(at)
        if int.from_bytes(file.read(8), "little") != storage.count:
            raise CheckpointError(f"corrupt: storage {key} has another size; fetch it again")
        begins[key], at = at + 8, at + 8 + storage.nbytes
    if at > size:
        raise CheckpointError(f"truncated: {size} of {at} bytes; fetch it again")
    return pickled, begins


def _read_head(file: BoundedReader) -> None:
    """Read the beginning of a file of torch < 1.6; the rest of its pickles follow."""
    head = file.read(_HEAD_LENGTH)
    if head in _HEADS:
        return
    start = head + file.read(512)
    if start.startswith(_TEXT_MAGIC):
        raise other_protocol("0 or 1")
    if start[:1] == b"\x80" and start[1] not in PROTOCOLS and _MAGIC in start[:_NEW]:
        raise other_protocol(start[1])
    if start[_TAR_AT:].startswith(_TAR):
        raise CheckpointError(
            f"refused: a tar, as torch < 0.1.10 saved, which torch cannot read without code; {SAVE_AGAIN}"
        )
    if start.startswith(b"\x1f\x8b"):
        raise CheckpointError("refused: it was compressed by gzip; unpack it")
    if start[:1] == b"\x80" and start[1:2] <= b"\x05":
        raise CheckpointError("refused: a pickle, but not one that torch.save wrote")
    raise CheckpointError("refused: not a file that torch.save wrote")
