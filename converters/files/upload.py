"""Upload of a converted folder to the hub."""

from __future__ import annotations

from pathlib import Path

from converters.files.hub import REPOSITORY, reason
from tts_core.errors import NotFoundError, UsageError


def check_name(repository: str, *, offline: bool) -> None:
    """Raise UsageError unless a repository has the form owner/name and the hub may be asked."""
    if not REPOSITORY.fullmatch(repository):
        raise UsageError(f"--upload-repo: {repository} is no hub id; give one of the form owner/name")
    if offline:
        raise UsageError("--upload-repo: --offline forbids the upload; leave one of them out")


def files_of(folder: Path) -> list[str]:
    """List the files that an upload sends, by their paths in the folder: all but hidden ones."""
    found = (path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file())
    return [path.as_posix() for path in found if not any(part.startswith(".") for part in path.parts)]


def upload(folder: Path, repository: str) -> str:
    """Create the repository if needed, upload a converted folder in one commit, and return its address.

    Raises NotFoundError if the hub refuses or cannot be reached; the folder stays.
    """
    from huggingface_hub import HfApi

    hub = HfApi()
    try:
        hub.create_repo(repository, exist_ok=True)
        hub.upload_folder(
            repo_id=repository,
            folder_path=folder,
            allow_patterns=files_of(folder),
            commit_message="Upload with mlx-port",
        )
    except Exception as fault:  # the transport raises many kinds
        raise NotFoundError(
            f"--upload-repo: {repository} was not uploaded ({reason(fault)}); log in with "
            f"hf auth login, or set HF_TOKEN; {folder} is complete"
        ) from fault
    return f"{hub.endpoint}/{repository}"
