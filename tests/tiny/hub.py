"""A hub of the tests: repositories in folders, and the client's cache as it fills it. No network."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub import DryRunFileInfo
from huggingface_hub.errors import RepositoryNotFoundError
from huggingface_hub.utils import filter_repo_objects

from tts_core.voice.embedded import CODEC, DIA

COMMIT = "0123456789" * 4
VOICE = "our/voice"  # the embedded voice's published files


def write_voice(folder: Path) -> Path:
    """Write the files of VOICE."""
    shutil.copytree(DIA, folder)
    shutil.copytree(CODEC, folder / "codec")
    return folder


def cached(hub: Path, repository: str, source: Path, names: list[str] | None = None) -> Path:
    """Put files of a repository into a hub's cache: blobs, links to them in a snapshot, the ref of main."""
    held = hub / f"models--{repository.replace('/', '--')}"
    snapshot = held / "snapshots" / COMMIT
    for folder in (held / "refs", held / "blobs", snapshot):
        folder.mkdir(parents=True, exist_ok=True)
    (held / "refs/main").write_text(COMMIT)
    for file in sorted(path for path in source.rglob("*") if path.is_file()):
        name = file.relative_to(source).as_posix()
        if names is None or name in names:
            blob, link = held / "blobs" / name.replace("/", "_"), snapshot / name
            link.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, blob)
            if not link.is_symlink():
                link.symlink_to(blob)
    return snapshot


@dataclass
class OnlineHub:
    """A hub that the client reaches. remote: repository → its files.  downloads: requests for files."""

    cache: Path
    remote: dict[str, Path]
    client: Callable[..., str] = field(default=huggingface_hub.snapshot_download)
    asked: list[str] = field(default_factory=list)
    downloads: list[str] = field(default_factory=list)

    def snapshot_download(
        self, repository, *, revision=None, allow_patterns, local_files_only=False, dry_run=False, **_
    ):
        """Do as huggingface_hub's function."""
        if local_files_only:
            return self.client(repository, cache_dir=self.cache, local_files_only=True)
        self.asked.append(repository)
        source = self.remote.get(repository)
        if source is None:
            raise _absent()
        files = [path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file()]
        names = [*filter_repo_objects(files, allow_patterns=allow_patterns)]
        there = self.cache / f"models--{repository.replace('/', '--')}" / "snapshots" / COMMIT
        if dry_run:
            return [
                DryRunFileInfo(
                    commit_hash=COMMIT,
                    file_size=(source / name).stat().st_size,
                    filename=name,
                    local_path=str(there / name),
                    is_cached=(there / name).exists(),
                    will_download=not (there / name).exists(),
                )
                for name in names
            ]
        if any(not (there / name).exists() for name in names):
            self.downloads.append(repository)
        return str(cached(self.cache, repository, source, names))


def _absent() -> RepositoryNotFoundError:
    error = RepositoryNotFoundError.__new__(RepositoryNotFoundError)
    Exception.__init__(error, "404")
    return error


@pytest.fixture
def online(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> OnlineHub:
    """A hub with the repository VOICE, and empty caches of the hub's client and of mlx-port."""
    hub = OnlineHub(tmp_path / "hub", {VOICE: write_voice(tmp_path / "remote/voice")})
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(hub.cache))
    monkeypatch.setattr(huggingface_hub, "snapshot_download", hub.snapshot_download)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return hub
