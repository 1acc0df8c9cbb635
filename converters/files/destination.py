"""The destination of a conversion: a folder that appears whole, or not at all."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tts_core.errors import CheckpointError, NotFoundError, ResourceError, SpeechError, UsageError
from tts_core.files.record import RECORD, Record
from tts_core.files.whole import sync

_LITTER = {".DS_Store"}  # Finder's notes about a folder
_PREFIX = ".mlx-port-"  # of hidden folders in which conversions work
_OLD = "old"  # in such a folder: the model that is replaced, by its name
_SPARE_BYTES = 16 * 2**20  # headers, descriptions, and what a file system rounds up
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_REFUSED = (
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.ENOTEMPTY),
    *(errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL),
)


def check_destination(destination: Path, *, force: bool, sources: Sequence[Path] = ()) -> None:
    """Raise UsageError unless a folder may appear there.

    force: in place of an older converted one, in which every file is on its record. sources: files that are
    being converted.
    """
    with _explained(destination):
        if not os.path.lexists(destination):
            return
        if not force:
            raise UsageError(f"DST: {destination} exists; give another name, or --force to replace it")
        if destination.is_symlink() or not destination.is_dir():
            raise UsageError(
                f"DST: {destination} is not a folder, --force does not replace it; remove it yourself"
            )
        if any(destination.iterdir()):
            _check_replaceable(destination)
    inside = [file for file in sources if destination.resolve() in file.resolve().parents]
    if inside:
        raise UsageError(
            f"DST: {destination} contains {inside[0].name}, which is converted; give another name"
        )


def _check_replaceable(destination: Path) -> None:
    try:
        others = others_in(destination)
    except NotFoundError:
        raise UsageError(
            f"DST: {destination} is not a converted model (it has no {RECORD}), "
            "--force does not replace it; give another name"
        ) from None
    except CheckpointError as fault:
        raise UsageError(
            f"DST: --force does not replace {destination}, whose files are not known ({fault}); "
            "give another name"
        ) from None
    if others:
        more = f" and {len(others) - 3} more" if len(others) > 3 else ""
        raise UsageError(
            f"DST: {destination} contains {', '.join(others[:3])}{more}, which no conversion wrote, "
            "--force does not delete it; move it elsewhere, or give another name"
        )


def others_in(folder: Path) -> list[str]:
    """List the files in a converted folder that no conversion wrote, by their paths inside it.

    Raises what `tts_core.files.record.Record.read` raises.
    """
    written = {RECORD, *Record.read(folder).files}
    found = [path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir()]
    names = [path.relative_to(folder).as_posix() for path in found if path.name not in _LITTER]
    return sorted(set(names) - written)


def check_space(folder: Path, needed: int) -> None:
    """Raise ResourceError unless `needed` bytes and 16 MiB to spare fit where `folder` is, or would be."""
    while not folder.exists():
        folder = folder.parent
    free, needed = shutil.disk_usage(folder).free, needed + _SPARE_BYTES
    if free < needed:
        raise ResourceError(f"DST: {folder} has {free / 1e6:,.0f} MB free, {needed / 1e6:,.0f} MB are needed")


@contextlib.contextmanager
def appearing(destination: Path, *, replace: bool = False) -> Iterator[Path]:
    """Yield a new folder that becomes `destination` when the block ends, and vanishes when it raises.

    replace: an older folder at `destination` goes then, not before. Every file is on the disk before its
    folder appears. An OSError becomes one of our errors, and UsageError is raised for what came meanwhile.
    """
    destination = destination.absolute()
    created = [folder for folder in destination.parents if not folder.exists()]  # innermost first
    with _explained(destination):
        try:
            destination.parent.mkdir(parents=True, exist_ok=True)
            with _workplace(destination.parent) as path:
                new, old = path / "new", path / _OLD / destination.name
                new.mkdir()
                yield new
                _sync(new)
                if replace and destination.exists():
                    if any(destination.iterdir()):
                        _check_replaceable(destination)
                    old.parent.mkdir()
                    os.rename(destination, old)
                _replace(new, destination)
                sync(destination.parent)
        except BaseException:
            with contextlib.suppress(OSError):
                for folder in created:
                    folder.rmdir()
            raise


def clear_leftovers(parent: Path) -> None:
    """Remove what killed conversions left in a folder; an older model that one took away goes back."""
    with contextlib.suppress(OSError), _locked(parent, fcntl.LOCK_EX):
        for folder in parent.glob(_PREFIX + "?" * 8):
            with contextlib.suppress(OSError), _locked(folder, fcntl.LOCK_EX | fcntl.LOCK_NB) as is_locked:
                if is_locked and not folder.is_symlink():
                    _dissolve(folder)


@contextlib.contextmanager
def _workplace(parent: Path) -> Iterator[Path]:
    """Make a hidden folder, locked until it is removed at the end."""
    with contextlib.ExitStack() as stack:
        with _locked(parent, fcntl.LOCK_EX):  # a new folder without its lock is a leftover
            folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
            stack.enter_context(_locked(folder, fcntl.LOCK_EX))
        stack.callback(_dissolve, folder)
        yield folder


@contextlib.contextmanager
def _locked(folder: Path, how: int) -> Iterator[bool]:
    """Lock a folder against other processes; the system drops the lock when the process ends, however.

    Yields False if another has it, and on a disk without locks.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(handle, how)
        except OSError:
            yield False
        else:
            yield True
    finally:
        os.close(handle)


def _dissolve(folder: Path) -> None:
    """Remove a conversion's folder; the older model that it took goes back if nothing is in its place."""
    for old in (folder / _OLD).glob("*"):
        if not os.path.lexists(folder.parent / old.name):
            os.rename(old, folder.parent / old.name)
    shutil.rmtree(folder, ignore_errors=True)


def _replace(folder: Path, destination: Path) -> None:
    """Rename a folder to its destination. Raises UsageError if something else appeared there first."""
    try:
        os.rename(folder, destination)
    except OSError as fault:
        if fault.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
            raise
        raise UsageError(
            f"DST: {destination} appeared meanwhile, another conversion was faster; nothing of this "
            "one was kept, give another name"
        ) from None


def _sync(folder: Path) -> None:
    """Write a folder and all that is in it to the disk."""
    for path, _, files in os.walk(folder, topdown=False):
        for name in files:
            sync(Path(path) / name)
        sync(Path(path))


@contextlib.contextmanager
def _explained(destination: Path) -> Iterator[None]:
    """Turn an OSError of the block into one of our errors."""
    try:
        yield
    except SpeechError:
        raise
    except OSError as fault:
        raise _os_fault(destination, fault) from fault


def _os_fault(destination: Path, fault: OSError) -> SpeechError:
    if fault.errno in _FULL:
        return ResourceError(f"DST: the disk of {destination.parent} is full; nothing was left there")
    reason = fault.strerror or str(fault) or type(fault).__name__
    if fault.errno in _REFUSED:
        return UsageError(f"DST: {destination} cannot be written ({reason}); give another place")
    if isinstance(fault, FileNotFoundError):
        return NotFoundError(
            f"{fault.filename}: vanished while it was read; nothing was left at {destination}"
        )
    return ResourceError(f"DST: writing {destination} failed ({reason}); nothing was left there")
