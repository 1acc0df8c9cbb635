"""Files that appear under their names whole, or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def whole_file(path: Path, mode: int) -> Iterator[BinaryIO]:
    """Open a hidden file beside `path`, which takes its name once the block ends without an error.

    mode: permissions.  Raises OSError.
    """
    handle, partial = tempfile.mkstemp(dir=path.parent, prefix=".part-", suffix=path.suffix)
    try:
        with open(handle, "wb") as file:
            yield file
        os.chmod(partial, mode)  # mkstemp's files are private
        os.replace(partial, path)
    finally:
        Path(partial).unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Wait until a file or folder is on the disk. Raises OSError."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
