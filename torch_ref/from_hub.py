"""Folder that a model is loaded from: a local one, or a hub id's, fetched on first use."""

from __future__ import annotations

from pathlib import Path

from converters.cache import Form, fetch_fitting
from converters.files.hub import is_hub_id
from torch_ref.device import choose, free_bytes, name_of
from tts_core import models
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

    Raises UsageError for bits, or a revision of a local folder, and what fetching raises.
    """
    if bits is not None:
        raise UsageError("bits: PyTorch runs no quantized weights; omit it, or use the MLX backend")
    if is_hub_id(path):
        name = models.published().get(str(path), (None,))[0]
        there = choose(None, dtype, name)
        form, memory = Form(name_of(there.dtype)), free_bytes(there.device)
        return fetch_fitting(str(path), form, revision=revision, offline=offline, memory=memory).path
    if revision is not None:
        raise UsageError(f"revision: {path} is a local folder; leave it out, or give a hub id")
    return Path(path)
