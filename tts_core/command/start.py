"""Start of a program: what must be right before anything else is imported."""

from __future__ import annotations

import os
import signal
import sys
from importlib import import_module

TEMPORARY = ("TMPDIR", "TMP", "TEMP", "TEMPDIR")  # in the order in which MLX's C++ code reads them


def start(module: str) -> None:
    """Import a program's module and call its `main`.

    Ctrl-C during the import ends the process by the signal, without a traceback.
    """
    _fill_closed_streams()
    _forget_unusable_folders()
    _leave_folder_of_another_user()
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    program = import_module(module).main
    signal.signal(signal.SIGINT, handler)
    program()


def _fill_closed_streams() -> None:
    """Open the null device in place of closed standard streams.

    Otherwise the next file would take the number, and get what a library prints. `sys.stdin` and `sys.stdout`
    stay None: nobody reads or writes there.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, this one
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115  for the whole process


def _forget_unusable_folders() -> None:
    """Remove variables that name no writable folder: Python falls back to /tmp by itself, MLX fails."""
    for name in TEMPORARY:
        folder = os.environ.get(name)
        if folder is not None and not (os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)):
            del os.environ[name]


def _leave_folder_of_another_user() -> None:
    """Give MLX a folder of this user's own where it could not write to its own.

    MLX compiles for a CPU in the folder mlx of temporary files, which the first user who ran it owns.
    """
    folder = next((os.environ[name] for name in TEMPORARY if name in os.environ), "/tmp")
    if all(os.access(folder, os.W_OK | os.X_OK) for folder in _folders_of_mlx(os.path.join(folder, "mlx"))):
        return
    own = os.path.join(folder, f"mlx-port-{os.getuid()}")
    try:
        os.makedirs(own, mode=0o700, exist_ok=True)
        found = os.lstat(own)
    except OSError:
        return  # MLX states the error
    if found.st_uid == os.getuid() and not found.st_mode & 0o022:
        os.environ[TEMPORARY[0]] = own


def _folders_of_mlx(top: str) -> list[str]:
    """List MLX's folders that exist: its own, and one of each version."""
    if not os.path.isdir(top):
        return []
    try:
        versions = [os.path.join(top, name) for name in os.listdir(top)]
    except PermissionError:
        versions = []
    folders = [top, *versions, *(os.path.join(version, "cpu") for version in versions)]
    return [folder for folder in folders if os.path.isdir(folder)]
