"""Files that nobody but this user and root can change: what a library must be before it is loaded."""

from __future__ import annotations

import os
import stat
from pathlib import Path

_WRITABLE = stat.S_IWGRP | stat.S_IWOTH


def make_folder(folder: Path) -> None:
    """Create a folder and the missing ones above it, each for this user only. Raises OSError."""
    if not folder.is_dir():
        if folder.parent != folder:
            make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def check_folder(folder: Path) -> None:
    """Raise PermissionError if another user can replace an entry of a folder, or a folder above it.

    folder: without links, as `Path.resolve` returns it.  Folders above the home folder are not checked; those
    of another place are, up to the root.  In a sticky folder, as /tmp, nobody can replace what is another's.
    """
    home = Path(os.path.expanduser("~")).resolve()  # Path.home() raises where nobody knows it
    for above in (folder, *folder.parents):
        status = _status(above)
        shared = status.st_mode & _WRITABLE and not status.st_mode & stat.S_ISVTX
        _refuse(above, shared or not stat.S_ISDIR(status.st_mode), status)
        if above == home:
            return


def check_file(path: Path) -> None:
    """Raise PermissionError if another user can write to a file, or if it is not a regular file."""
    status = _status(path)
    _refuse(path, status.st_mode & _WRITABLE or not stat.S_ISREG(status.st_mode), status)


def _refuse(path: Path, shared: int | bool, status: os.stat_result) -> None:
    if shared or status.st_uid not in (0, os.getuid()):
        raise PermissionError(f"{path}: another user can change it, so no library is loaded from it")


def _status(path: Path) -> os.stat_result:
    return os.lstat(path)
