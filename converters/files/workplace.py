"""Hidden folders in which conversions work, and removal of those that killed conversions left.

A running conversion locks its folder; the system drops the lock when the process ends, however it ends. A
folder that can be locked is therefore a leftover, also where containers share a disk and process numbers.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import re
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tts_core.errors import SpeechError
from tts_core.files.json_object import read_json
from tts_core.files.record import RECORD, Record
from tts_core.printable import one_line

_LOG = logging.getLogger("converters")
_PREFIX = ".mlx-port-"
_NAME = re.compile(re.escape(_PREFIX) + r"[a-z0-9_]{8}")  # as tempfile.mkdtemp completes it
_NEW, _OLD, _OWNER = "new", "old", "owner.json"  # inside
_LITTER = {".DS_Store"}  # Finder's notes about a folder
_FOREIGN = 24 * 3600  # seconds after which the folder of another machine is a leftover


class Workplace(NamedTuple):
    """The places of one conversion. new: the folder to fill. old: for the folder that it replaces."""

    new: Path
    old: Path


@contextlib.contextmanager
def workplace(destination: Path) -> Iterator[Workplace]:
    """Make a locked folder beside `destination`; remove it at the end with all that a conversion put into it.

    A folder that was moved to `old` goes back to `destination` if nothing took its place.
    """
    folder, lock = _create(destination.parent)
    try:
        owner = {"kernel": _kernel(), "destination": os.fsencode(destination.name).hex()}
        (folder / _OWNER).write_text(json.dumps(owner), "utf-8")
        (folder / _NEW).mkdir()
        yield Workplace(folder / _NEW, folder / _OLD)
    finally:
        with contextlib.suppress(OSError):
            _dissolve(folder)
        os.close(lock)


def clear_leftovers(parent: Path) -> None:
    """Remove the folders that killed conversions left in `parent`, and log a line for each.

    An older folder that was being replaced is put back.
    """
    with contextlib.suppress(OSError):  # no such folder, or not readable
        for entry in list(os.scandir(parent)):
            if _NAME.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
                with contextlib.suppress(OSError):
                    _clear(Path(entry.path))


def others_in(folder: Path) -> list[str]:
    """List the files in a converted folder that no conversion wrote, by their paths inside it.

    Raises what `tts_core.files.record.Record.read` raises.
    """
    written = {RECORD, *Record.read(folder).files}
    return sorted(name for name in _files(folder) if name not in written and Path(name).name not in _LITTER)


def _clear(folder: Path) -> None:
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if not _locked(lock) or _is_foreign(folder):
            return
        size = sum((folder / _NEW / name).lstat().st_size for name in _files(folder / _NEW))
        restored = _dissolve(folder)
        if restored is not None:
            _LOG.warning(
                "%s: put back; the conversion that replaced it was interrupted", one_line(str(restored))
            )
        if not folder.exists():
            shown = one_line(str(folder.parent))
            _LOG.warning("%s: removed %.1f MB that an interrupted conversion left", shown, size / 1e6)
    finally:
        os.close(lock)


def _create(parent: Path) -> tuple[Path, int]:
    """Create and lock a folder. Return its path and the descriptor with the lock."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        with contextlib.suppress(FileNotFoundError):  # removed by another process as a leftover
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            if _locked(lock) is not False and folder.exists():
                return folder, lock
            os.close(lock)


def _locked(handle: int) -> bool | None:
    """Try to lock a folder. Return True if this process now has the lock, None on a disk without locks."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _dissolve(folder: Path) -> Path | None:
    """Remove the contents of a conversion's folder. Return the destination if its old folder was put back."""
    old, restored = folder / _OLD, None
    if old.is_dir():
        destination = _destination(folder)
        if destination is not None and not os.path.lexists(destination):
            os.rename(old, destination)
            restored = destination
        elif _remove_written(old):
            _LOG.warning("%s: kept, since it contains files that no conversion wrote", one_line(str(old)))
    shutil.rmtree(folder / _NEW, ignore_errors=True)
    if not old.exists():
        (folder / _OWNER).unlink(missing_ok=True)
        folder.rmdir()
    return restored


def _remove_written(folder: Path) -> bool:
    """Remove the files of a conversion, the record of them last, then every empty folder.

    Return whether other files are left.
    """
    files = _files(folder)
    try:
        written = {RECORD, *Record.read(folder).files} if files else set()
    except (SpeechError, OSError):
        return True
    for name in sorted(files, key=RECORD.__eq__):
        if name in written or Path(name).name in _LITTER:
            (folder / name).unlink()
    for place, _, _ in os.walk(folder, topdown=False):
        with contextlib.suppress(OSError):  # not empty
            os.rmdir(place)
    return folder.exists()


def _files(folder: Path) -> list[str]:
    """List all files and links in a folder by their relative paths, with slashes."""
    found = []
    for place, folders, files in os.walk(folder):
        links = [name for name in folders if os.path.islink(os.path.join(place, name))]
        found += [(Path(place) / name).relative_to(folder).as_posix() for name in (*files, *links)]
    return found


def _destination(folder: Path) -> Path | None:
    """Read the destination of the conversion that works, or worked, in a folder."""
    try:
        name = os.fsdecode(bytes.fromhex(read_json(folder / _OWNER)["destination"]))
    except (SpeechError, OSError, KeyError, TypeError, ValueError):
        return None
    return None if name in ("", ".", "..") or "/" in name or "\0" in name else folder.parent / name


def _is_foreign(folder: Path) -> bool:
    """Return True if another machine may be at work, whose locks are not visible here."""
    try:
        kernel = read_json(folder / _OWNER).get("kernel")
    except FileNotFoundError:  # new, or its conversion died at once
        return False
    except (SpeechError, OSError):
        kernel = None
    return kernel != _kernel() and time.time() - folder.stat().st_mtime < _FOREIGN


def _kernel() -> str:
    """Identify the system whose locks are visible here; its containers share them."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return f"{uuid.getnode():x}"
