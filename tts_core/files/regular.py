"""Regular files: opening one never waits for a pipe, a failing disk is one clear error, a change shows."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import NamedTuple

from tts_core.errors import CheckpointError, ResourceError, SpeechError

LARGEST_TEXT = 16 << 20  # bytes of a description or a document; published ones have at most 3 million

# a pipe must not make the call wait; Windows would translate line ends
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
_DISK = (errno.EIO, errno.EREMOTEIO) if hasattr(errno, "EREMOTEIO") else (errno.EIO,)


class Identity(NamedTuple):
    """The state of a file on its disk: a writer changes its size or time, a replacement its inode."""

    device: int
    inode: int
    size: int  # bytes
    modified: int  # ns

    @classmethod
    def of(cls, status: os.stat_result) -> Identity:
        """Take the fields that a change shows in."""
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Name the file in whatever the disk refuses inside the block.

    Raises ResourceError for a failing disk, CheckpointError for what is not a file; a missing or forbidden
    file stays the OSError that it is.
    """
    try:
        yield
    except SpeechError:
        raise
    except OSError as fault:
        reason = fault.strerror or type(fault).__name__
        if fault.errno in _DISK:
            raise ResourceError(
                f"{path}: cannot be read ({reason}); check the disk, or copy the file"
            ) from fault
        if isinstance(fault, FileNotFoundError | PermissionError):
            raise type(fault)(fault.errno, reason, str(path)) from fault
        raise CheckpointError(f"{path}: cannot be read ({reason})") from fault


@contextmanager
def opened(path: Path, expected: Identity | None = None) -> Iterator[FileIO]:
    """Open a regular file for reading, unbuffered; inside the block `reading` holds.

    expected: raise CheckpointError if the file is no longer this one.
    """
    with reading(path):
        _check_regular(path, os.stat(path))
        handle = os.open(path, _FLAGS)  # a pipe put there since: no wait
        with open(handle, "rb", buffering=0) as file:
            status = os.fstat(handle)
            _check_regular(path, status)
            if expected is not None and Identity.of(status) != expected:
                raise changed(path)
            yield file


def read_into(file: FileIO, target: memoryview, path: Path) -> None:
    """Fill `target` from the file's position on. Raises CheckpointError if the file ends before."""
    while target:
        count = file.readinto(target)
        if not count:
            raise changed(path)
        target = target[count:]


def identity(path: Path) -> Identity:
    """Return the state of a regular file, for `check_unchanged`."""
    with reading(path):
        status = os.stat(path)
        _check_regular(path, status)
    return Identity.of(status)


def check_unchanged(path: Path, expected: Identity) -> None:
    """Raise CheckpointError if a file is not as it was."""
    try:
        same = Identity.of(os.stat(path)) == expected
    except OSError:
        same = False
    if not same:
        raise changed(path)


def changed(path: Path) -> CheckpointError:
    """Build the error for a file that did not stay the same."""
    return CheckpointError(
        f"{path}: the file changed while it was read; wait until it is complete, then try again"
    )


def read_bytes(path: Path, most: int = LARGEST_TEXT) -> bytes:
    """Read a whole regular file of at most `most` bytes. Raises CheckpointError for a larger one."""
    with opened(path) as file:
        content = bytearray()
        while piece := file.read(min(most + 1 - len(content), 1 << 20)):
            content += piece
            if len(content) > most:
                raise CheckpointError(
                    f"{path}: larger than {most} bytes, the most that is read of such a file"
                )
    return bytes(content)


def read_text(path: Path, most: int = LARGEST_TEXT) -> str:
    """Read a UTF-8 text of at most `most` bytes, line ends as they are. Raises CheckpointError."""
    try:
        return read_bytes(path, most).decode("utf-8")
    except UnicodeDecodeError as fault:
        raise CheckpointError(f"{path}: not UTF-8 ({fault.reason} at byte {fault.start})") from None


def irregular(mode: int) -> str | None:
    """Name what is not a regular file, by its `st_mode`: "a named pipe"; None for a file."""
    if stat.S_ISREG(mode):
        return None
    return next((name for matches, name in _KINDS if matches(mode)), "something else")


def _check_regular(path: Path, status: os.stat_result) -> None:
    if kind := irregular(status.st_mode):
        raise CheckpointError(f"{path}: {kind}, not a file")
