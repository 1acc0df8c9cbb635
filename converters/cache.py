"""Cache of converted folders: a hub id is fetched and converted once.

A folder is called by its repository, commit, dtype, bits and this package's format. It appears whole; a lock
lets one of several processes write it, and the others wait. `refs` keeps the commit of each branch or tag, so
that a later start asks nothing of the hub.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from converters.convert import outline, write
from converters.files.folders import is_converted
from converters.files.hub import Listing, Located, fetch, hub_cache
from converters.published import is_conversion, open_published
from converters.rules.dequantize import Quantization
from tts_core import models
from tts_core.config import FORMAT_VERSION
from tts_core.errors import ResourceError, SpeechError, UsageError, did_you_mean
from tts_core.files.private import make_folder
from tts_core.files.record import RECORD, Record
from tts_core.files.whole import whole_file
from tts_core.memory.computer import free_disk_bytes
from tts_core.memory.fits import gigabytes
from tts_core.memory.machine import BYTES
from tts_core.memory.weights import weight_bytes
from tts_core.printable import one_line
from tts_core.voice.embedded import cache_folder

_LOG = logging.getLogger("converters")
_LOCK, _REFS = ".lock", "refs"


@dataclass(frozen=True)
class Form:
    """Form of a model's weights. None: as published.

    dtype: by name.
    bits: per weight of quantized layers.
    """

    dtype: str | None = None
    bits: int | None = None

    def __str__(self) -> str:
        return f"{self.dtype or 'published'}{f', {self.bits} bits' if self.bits else ''}"

    @property
    def quantization(self) -> Quantization | None:
        """Return MLX's affine quantization of these bits."""
        return None if self.bits is None else Quantization.of(bits=self.bits)


@dataclass(frozen=True)
class CachedModel:
    """A converted folder in the cache. nbytes: on the disk."""

    repository: str
    commit: str
    form: str
    path: Path
    nbytes: int


def folders() -> Path:
    """Return the folder of the cache."""
    return cache_folder() / "models"


def converted_folder(
    repository: str,
    form: Form,
    *,
    revision: str | None = None,
    offline: bool = False,
    memory: int | None = None,
) -> Path:
    """Return the folder that a hub id is loaded from; the first call fetches and converts it.

    A repository in our own converted form, or in another program's MLX form, is loaded from the hub's cache,
    unless `form` asks for bits.
    memory: free bytes, checked before a download; None if unknown.
    Raises NotFoundError for a repository that cannot be fetched; ResourceError for too little disk or memory.
    """
    path = folders() / repository.replace("/", "--")
    ref = path / _REFS / (revision or "main").replace("/", "--")
    known = _known(ref)
    for commit in filter(None, (known, revision)):
        folder = path / _name(commit, form)
        if "/" not in commit and _is_complete(folder):
            return folder
    found = fetch_fitting(repository, form, revision=revision, offline=offline, memory=memory, converts=True)
    if form.bits is None and (is_converted(found.path) or is_conversion(found.path)):
        return found.path
    folder = path / _name(str(found.commit), form)
    with _locked(path):
        if not _is_complete(folder):
            _convert(found, form, folder, offline=offline)
        ref.parent.mkdir(exist_ok=True)
        with whole_file(ref) as file:
            file.write(str(found.commit).encode())
    return folder


def fetch_fitting(
    repository: str,
    form: Form,
    *,
    revision: str | None = None,
    offline: bool = False,
    memory: int | None = None,
    converts: bool = False,
) -> Located:
    """Fetch a repository into the hub's cache, unless its weights do not fit in memory or on the disk.

    converts: a converted copy is written, too.
    """

    def check(listed: Listing) -> None:
        needed = _weights(listed, form)
        if memory is not None and needed > memory:
            raise ResourceError(
                f"memory: {repository}'s weights take {gigabytes(needed)}, {gigabytes(memory)} are free; "
                f"{_smaller(listed, form, memory)}; nothing was downloaded"
            )
        if converts:
            _check_disk(listed, needed)

    return fetch(repository, flag="model", revision=revision, offline=offline, check=check)


def entries() -> list[CachedModel]:
    """List the converted folders, by repository."""
    found = []
    for record in sorted(folders().glob(f"*/*/{RECORD}")):
        folder = record.parent
        commit, _, form = folder.name.partition("-")
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        name = folder.parent.name.replace("--", "/", 1)
        found.append(CachedModel(name, commit, form.rpartition("-")[0], folder, size))
    return found


def remove(repository: str) -> list[CachedModel]:
    """Remove a repository's converted folders, of every commit and form. Return them.

    Raises UsageError if there is none. What the hub's cache has stays.
    """
    every = entries()
    held = [entry for entry in every if entry.repository == repository]
    if not held:
        names = list(dict.fromkeys(entry.repository for entry in every))
        hint = did_you_mean(repository, names) or f"there is {', '.join(names) or 'none'}"
        raise UsageError(f"{repository}: not in the cache; {hint}")
    folder = held[0].path.parent
    with _locked(folder):
        shutil.rmtree(folder / _REFS, ignore_errors=True)
        for entry in held:
            (entry.path / RECORD).unlink(missing_ok=True)  # first: what is left is no model
            shutil.rmtree(entry.path)
    return held


def _name(commit: str, form: Form) -> str:
    bits = f"-{form.bits}bit" if form.bits else ""
    return f"{commit}-{form.dtype or 'published'}{bits}-format{FORMAT_VERSION}"


def _known(ref: Path) -> str | None:
    """Read the commit of a branch or tag that was converted before."""
    try:
        return ref.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None


def _is_complete(folder: Path) -> bool:
    """Return True if a folder exists with all files, of their sizes; a cleaner may have removed some."""
    try:
        Record.read(folder).check_sizes()
    except (SpeechError, OSError):
        return False
    return True


def _convert(found: Located, form: Form, folder: Path, *, offline: bool) -> None:
    from tqdm import tqdm

    published = open_published(str(found.repository), revision=found.commit, offline=offline, flag="model")
    if form.bits is not None and any(part.quantization for part in published.parts.values()):
        raise UsageError(f"bits: {found.repository} is quantized as published; leave --bits out")
    whole = outline(published, dtype=form.dtype, quantization=form.quantization)
    shutil.rmtree(folder, ignore_errors=True)  # incomplete
    with tqdm(
        total=whole.nbytes, unit="B", unit_scale=True, desc="converting", leave=False, disable=None
    ) as bar:
        write(published, whole, folder, progress=bar.update)
    size = gigabytes(sum(path.stat().st_size for path in folder.rglob("*")))
    _LOG.warning("%s: converted (%s), %s in %s", found.repository, form, size, one_line(str(folder)))


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock a repository's folder against other processes, and wait for one that has the lock."""
    try:
        make_folder(folder)
        handle = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as fault:
        raise UsageError(
            f"model: {folder} cannot be written ({fault.strerror}); set XDG_CACHE_HOME to another folder"
        ) from fault
    try:
        with contextlib.suppress(OSError):  # a disk without locks: the folder still appears whole
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _weights(listed: Listing, form: Form) -> int:
    """Count the bytes of the weights in a form: exactly for a published model, at least for another."""
    name, configs = models.published().get(listed.repository, (None, {}))
    if name is None:
        bits = form.bits or 8 * BYTES[form.dtype or "float32"]
        return listed.weights * min(bits, 32) // 32
    how = None if form.quantization is None else form.quantization.to_dict()
    dtype = form.dtype or models.MODELS[name].published_dtype
    return sum(weight_bytes(kind, config, dtype, how) for kind, config in configs.items())


def _smaller(listed: Listing, form: Form, memory: int) -> str:
    """Advise the most bits that fit."""
    for bits in (8, 4):
        needed = _weights(listed, Form(form.dtype, bits))
        if (form.bits or 32) > bits and needed <= memory:
            return f"--bits {bits} takes {gigabytes(needed)}"
    return "free some memory, or choose a smaller model"


def _check_disk(listed: Listing, converted: int) -> None:
    """Raise ResourceError unless the converted folder fits beside the download."""
    free, folder = free_disk_bytes(folders()), folders()
    downloaded = listed.missing if _device(hub_cache()) == _device(folder) else 0
    if free < converted + downloaded:
        more = f", beside {gigabytes(downloaded)} to download" if downloaded else ""
        raise ResourceError(
            f"disk: {listed.repository} takes {gigabytes(converted)} converted{more}, {folder} has "
            f"{gigabytes(free)} free; free some space, or set XDG_CACHE_HOME and HF_HOME to a larger disk; "
            "nothing was downloaded"
        )


def _device(folder: Path) -> int:
    while not folder.exists():
        folder = folder.parent
    return folder.stat().st_dev
