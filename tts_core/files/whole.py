"""Files that appear under their names whole, or not at all, and files that grow by whole entries."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


@contextmanager
def whole_file(path: Path, mode: int | None = None) -> Iterator[BinaryIO]:
    """Open a hidden file beside `path`, which takes its name once the block ends without an error.

    mode: permissions; None is those of a new file.  Raises OSError.
    """
    handle, partial = tempfile.mkstemp(dir=path.parent, prefix=".part-", suffix=path.suffix)
    try:
        with open(handle, "wb") as file:
            yield file
        os.chmod(partial, 0o666 & ~_umask() if mode is None else mode)  # mkstemp's files are private
        os.replace(partial, path)
    finally:
        Path(partial).unlink(missing_ok=True)


def _umask() -> int:
    value = os.umask(0)
    os.umask(value)
    return value


def append(path: Path, content: bytes, at: int) -> None:
    """Write content at the offset `at`, where the file ends then, and wait until it is on the disk.

    Raises OSError; the file then ends at `at`.
    """
    try:
        with path.open("r+b" if path.exists() else "wb") as file:
            file.seek(at)
            file.truncate()
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        with suppress(FileNotFoundError):
            os.truncate(path, at)
        raise


def sync(path: Path) -> None:
    """Wait until a file or folder is on the disk. Raises OSError."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
