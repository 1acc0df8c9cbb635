"""Folder that a model is loaded from: a local one, or a hub id's, fetched and converted on first use."""

from __future__ import annotations

from pathlib import Path

from mlx_port.runtime.memory import free_bytes
from tts_core.errors import UsageError


def local_folder(
    path: str | Path,
    *,
    dtype: str | None = None,
    bits: int | None = None,
    revision: str | None = None,
    offline: bool = False,
) -> Path:
    """Return the folder of a path or hub id; one that exists locally is not asked of the hub.

    Raises UsageError for bits or a revision of a local folder, and what fetching and converting raise.
    """
    folder = Path(path)
    if isinstance(path, str) and "/" in path and not folder.exists():
        from converters.cache import Form, converted_folder
        from converters.files.hub import is_hub_id

        if is_hub_id(path):
            form = Form(dtype, bits)
            return converted_folder(path, form, revision=revision, offline=offline, memory=free_bytes())
    if bits is not None:
        raise UsageError(
            f"bits: {folder} is a local folder and is loaded as it is; quantize it first: "
            f"convert-weights {folder} NEW_FOLDER -q --q-bits {bits}"
        )
    if revision is not None:
        raise UsageError(f"revision: {folder} is a local folder; leave it out, or give a hub id")
    return folder
