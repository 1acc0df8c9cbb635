"""Location of sources: files on this machine, or repositories fetched into the hub's cache."""

from __future__ import annotations

import difflib
import errno
import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tts_core import models
from tts_core.errors import NotFoundError, ResourceError, UsageError, not_there
from tts_core.files.record import CARD, RECORD
from tts_core.memory.computer import free_disk_bytes
from tts_core.memory.fits import gigabytes
from tts_core.printable import either

_LOG = logging.getLogger("converters")

REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_FILE = re.compile(r"\.(safetensors|pth|pt|bin|th|json|yaml)$")
SAFETENSORS = ("*.safetensors", "*.safetensors.index.json")
PICKLES = ("*.pth", "*.pt", "*.bin", "*.th")
_WEIGHTS = {Path(pattern).suffix for pattern in (*SAFETENSORS[:1], *PICKLES)}
# repositories with gigabytes of unneeded pickles → the needed ones
WANTED = {"facebook/multiband-diffusion": ("mbd_comp_8.pt",)}


@dataclass(frozen=True)
class Located:
    """A file or folder on this machine. repository, commit: its origin, if it was fetched."""

    path: Path
    repository: str | None = None
    commit: str | None = None


@dataclass(frozen=True)
class Listing:
    """Files of a repository that are read, in bytes. missing: those that are not in the hub's cache."""

    repository: str
    commit: str
    weights: int
    missing: int


def is_hub_id(source: str | Path) -> bool:
    """Return True for a string of the form owner/name, if no local path has that name or owner.

    Strings that look like files are paths.
    """
    name, path = str(source), Path(source).expanduser()
    return (
        not isinstance(source, Path)
        and REPOSITORY.fullmatch(name) is not None
        and not (_FILE.search(name) or path.exists() or path.parent.exists())
    )


def locate(source: str | Path, *, flag: str, revision: str | None = None, offline: bool = False) -> Located:
    """Find a local file or folder, or fetch a hub id, "owner/name", that no local path has as its name.

    flag: the caller's name for the source, for messages. Strings that look like paths never go to the hub.
    Raises NotFoundError if the source is missing or cannot be fetched; UsageError for pipes and devices.
    """
    if not str(source):
        raise UsageError(f"{flag}: empty; give a folder, a file, or a hub id such as nari-labs/Dia-1.6B-0626")
    path = Path(source).expanduser()
    if path.is_file() or path.is_dir():
        return Located(path)
    if path.exists():
        raise UsageError(f"{flag}: {path} is neither a file nor a folder; give one of them")
    if not is_hub_id(source):
        raise not_there(flag, path)
    return fetch(str(source), flag=flag, revision=revision, offline=offline)


@cache
def descriptions() -> tuple[str, ...]:
    """List the names of all files that parts are read from beside their weights, published or converted."""
    names = dict.fromkeys((CARD, RECORD))
    for network in map(models.network, models.kinds()):
        names |= dict.fromkeys((*network.descriptions, *network.documents, *network.optional_documents))
    return tuple(names)


def patterns(weights: Sequence[str]) -> list[str]:
    """List the files to ask a repository for: some weights, and `descriptions` in any folder."""
    return [*weights, *(f"{at}{name}" for name in descriptions() for at in ("", "*/"))]


def fetch(
    repository: str,
    *,
    flag: str,
    revision: str | None = None,
    offline: bool = False,
    check: Callable[[Listing], None] | None = None,
) -> Located:
    """Fetch a repository's safetensors, or its pickles if it has none, into the hub's own cache.

    check: called before a download. A line about it is logged. Raises ResourceError for a full disk.
    """
    listed = None if offline else _listing(repository, flag=flag, revision=revision)
    if listed is not None and listed.missing:
        _check_download(listed, flag)
        if check is not None:
            check(listed)
        _LOG.warning(
            "%s: commit %s, %s to download, %s free in %s",
            *(repository, listed.commit, gigabytes(listed.missing)),
            *(gigabytes(free_disk_bytes(hub_cache())), hub_cache()),
        )
    folder: Path = _client(repository, SAFETENSORS, flag=flag, revision=revision, offline=offline)
    if not any(folder.rglob("*.safetensors")):
        pickles = WANTED.get(repository, PICKLES)
        folder = _client(repository, pickles, flag=flag, revision=revision, offline=offline)
    commit = folder.name if folder.parent.name == "snapshots" else None
    return Located(folder, repository, commit)


def hub_cache() -> Path:
    """Return the folder of the hub's own cache, by HF_HUB_CACHE or HF_HOME."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def _check_download(listed: Listing, flag: str) -> None:
    free = free_disk_bytes(hub_cache())
    if free < listed.missing:
        raise ResourceError(
            f"{flag}: {listed.repository} takes {gigabytes(listed.missing)} to download, {hub_cache()} has "
            f"{gigabytes(free)} free; free some space, or set HF_HOME to a larger disk"
        )


def _listing(repository: str, *, flag: str, revision: str | None) -> Listing | None:
    """List what `fetch` reads; None if the hub cannot be asked."""
    for endings in (SAFETENSORS, WANTED.get(repository, PICKLES)):
        files = _client(repository, endings, flag=flag, revision=revision, dry_run=True)
        if files is None:
            return None
        sizes = {file.filename: int(file.file_size or 0) for file in files}
        weights = [size for name, size in sizes.items() if Path(name).suffix in _WEIGHTS]
        if weights:
            missing = sum(sizes[file.filename] for file in files if file.will_download)
            return Listing(repository, files[0].commit_hash, sum(weights), missing)
    return None


def _client(
    repository: str,
    weights: Sequence[str],
    *,
    flag: str,
    revision: str | None,
    offline: bool = False,
    dry_run: bool = False,
) -> Any:
    """Ask the hub's client for some weights, and `descriptions`. Return their folder.

    dry_run: return the list of files instead; None if the hub cannot be asked.
    """
    from huggingface_hub import errors, snapshot_download

    at = f"{flag}: {repository}" + (f" at {revision}" if revision else "")
    given: dict[str, Any] = {"revision": revision, "allow_patterns": patterns(weights)}
    try:
        if dry_run:
            return snapshot_download(repository, dry_run=True, tqdm_class=_silent(), **given)
        try:
            return Path(snapshot_download(repository, local_files_only=offline, **given))
        except errors.OfflineModeIsEnabled:  # huggingface_hub 1.31 raises it though the cache has the commit
            return Path(snapshot_download(repository, local_files_only=True, **given))
    except errors.DryRunError:
        return None
    except errors.GatedRepoError:
        raise NotFoundError(f"{at} is gated; accept its terms on the hub, then set HF_TOKEN") from None
    except errors.RepositoryNotFoundError:
        raise NotFoundError(
            f"{at} is not on the hub, or is private; {_nearest(repository)}or set HF_TOKEN"
        ) from None
    except errors.RevisionNotFoundError:
        raise NotFoundError(f"{at} has no such revision; check --revision") from None
    except errors.HFValidationError:
        raise NotFoundError(f"{at} is neither a local path nor a valid hub id; check the name") from None
    except errors.LocalEntryNotFoundError:
        raise NotFoundError(
            f"{at} is not in the hub's cache on this machine, and the hub is out of reach or switched off; "
            f"{_nearest(repository)}go online, or give a local folder"
        ) from None
    except Exception as fault:  # the transport raises many kinds
        if isinstance(fault, OSError) and fault.errno in (errno.ENOSPC, errno.EDQUOT):
            raise ResourceError(f"{at}: the disk is full; free some space in the hub's cache") from fault
        raise NotFoundError(f"{at} could not be fetched ({reason(fault)}); try again later") from fault


@cache
def _silent() -> type[Any]:
    """Build a progress bar that shows nothing: a list is no download."""
    from tqdm.asyncio import tqdm_asyncio

    class Silent(tqdm_asyncio):
        def __init__(self, *given: Any, **how: Any):
            super().__init__(*given, **how | {"disable": True})

    return Silent


def _nearest(repository: str) -> str:
    """Write the nearest known repositories for a mistyped one; nothing for a known one."""
    known = [*models.published(), *(str(models.network(kind).repository) for kind in models.CODECS)]
    if repository in known:
        return ""
    similar = difflib.get_close_matches(repository, known, n=3)
    return f"did you mean {either(similar)}? Check the name, " if similar else "check the name, "


def reason(fault: Exception) -> str:
    """Name an error of the transport, with its first line."""
    return f"{type(fault).__name__}: {' '.join(str(fault).strip().splitlines()[:1])[:160]}"
