"""Location of sources: files on this machine, or repositories fetched into the hub's cache."""

from __future__ import annotations

import errno
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tts_core import models
from tts_core.errors import NotFoundError, ResourceError, UsageError, not_there
from tts_core.files.record import CARD, RECORD

REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_FILE = re.compile(r"\.(safetensors|pth|pt|bin|th|json|yaml)$")
SAFETENSORS = ("*.safetensors", "*.safetensors.index.json")
PICKLES = ("*.pth", "*.pt", "*.bin", "*.th")
# repositories with gigabytes of unneeded pickles → the needed ones
WANTED = {"facebook/multiband-diffusion": ("mbd_comp_8.pt",)}


@dataclass(frozen=True)
class Located:
    """A file or folder on this machine. repository, commit: its origin, if it was fetched."""

    path: Path
    repository: str | None = None
    commit: str | None = None


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
    name = str(source)
    if (
        isinstance(source, Path)
        or not REPOSITORY.fullmatch(name)
        or _FILE.search(name)
        or path.parent.exists()
    ):
        raise not_there(flag, path)
    return fetch(name, flag=flag, revision=revision, offline=offline)


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


def fetch(repository: str, *, flag: str, revision: str | None = None, offline: bool = False) -> Located:
    """Fetch a repository's safetensors, or its pickles if it has none, into the hub's own cache."""
    folder = _snapshot(repository, SAFETENSORS, flag=flag, revision=revision, offline=offline)
    if not any(folder.rglob("*.safetensors")):
        pickles = WANTED.get(repository, PICKLES)
        folder = _snapshot(repository, pickles, flag=flag, revision=revision, offline=offline)
    commit = folder.name if folder.parent.name == "snapshots" else None
    return Located(folder, repository, commit)


def _snapshot(
    repository: str, weights: Sequence[str], *, flag: str, revision: str | None, offline: bool
) -> Path:
    from huggingface_hub import errors, snapshot_download

    at = f"{flag}: {repository}" + (f" at {revision}" if revision else "")
    wanted = patterns(weights)
    try:
        try:
            found = snapshot_download(
                repository, revision=revision, allow_patterns=wanted, local_files_only=offline
            )
        except errors.OfflineModeIsEnabled:  # huggingface_hub 1.31 raises it though the cache has the commit
            found = snapshot_download(
                repository, revision=revision, allow_patterns=wanted, local_files_only=True
            )
        return Path(found)
    except errors.GatedRepoError:
        raise NotFoundError(f"{at} is gated; accept its terms on the hub, then set HF_TOKEN") from None
    except errors.RepositoryNotFoundError:
        raise NotFoundError(
            f"{at} is not on the hub, or is private; check the name, or set HF_TOKEN"
        ) from None
    except errors.RevisionNotFoundError:
        raise NotFoundError(f"{at} has no such revision; check --revision") from None
    except errors.HFValidationError:
        raise NotFoundError(f"{at} is neither a local path nor a valid hub id; check the name") from None
    except errors.LocalEntryNotFoundError:
        raise NotFoundError(
            f"{at} is not in the hub's cache on this machine, and the hub is out of reach or switched off; "
            "go online, or give a local folder"
        ) from None
    except Exception as fault:  # the transport raises many kinds
        if isinstance(fault, OSError) and fault.errno in (errno.ENOSPC, errno.EDQUOT):
            raise ResourceError(f"{at}: the disk is full; free some space in the hub's cache") from fault
        raise NotFoundError(f"{at} could not be fetched ({reason(fault)}); try again later") from fault


def reason(fault: Exception) -> str:
    """Name an error of the transport, with its first line."""
    return f"{type(fault).__name__}: {' '.join(str(fault).strip().splitlines()[:1])[:160]}"
