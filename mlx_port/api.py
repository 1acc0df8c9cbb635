"""The port's front door."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from mlx_port.dia.pipeline import DiaPipeline
from mlx_port.loading import load
from tts_core.config import FORMAT_VERSION
from tts_core.errors import ResourceError, UsageError
from tts_core.pipeline import Pipeline, Progress, PromptLike
from tts_core.results import GenerationResult
from tts_core.voice.embedded import CODEC, DIA, cache_folders, fingerprint


def generate(
    text: str,
    model: Pipeline | str | Path | None = None,
    *,
    prompt: PromptLike = None,
    options: Any = None,
    progress: Callable[[Progress], None] | None = None,
    cancel: threading.Event | None = None,
    **changes: Any,
) -> GenerationResult:
    """Speak a text.

    model: a loaded one, a folder as `load` takes it, or None for the embedded voice, a Dia.
    prompt: reference speech.  options: the model's options, such as DiaOptions; `changes` replace some of
    their fields, as seed=1.  progress, cancel: see tts_core.pipeline.
    Raises UsageError for an option that the model does not have, and whatever the model's `generate` raises.
    """
    pipeline = embedded_voice() if model is None else model
    if isinstance(pipeline, str | Path):
        pipeline = load(pipeline)
    return pipeline.generate(
        text, prompt=prompt, options=options, progress=progress, cancel=cancel, **changes
    )


@lru_cache(maxsize=1)
def embedded_voice() -> DiaPipeline:
    """The voice that comes with the package, converted into the user's cache on first use and loaded once."""
    return DiaPipeline.load(converted_voice())


def converted_voice() -> Path:
    """The folder that holds the embedded voice in our layout; made on first use.

    $XDG_CACHE_HOME/mlx-port (or ~/.cache/mlx-port), a temporary folder where that cannot be written.
    """
    for folder in voice_folders():
        if _is_complete(folder):
            return folder
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder.parent, os.W_OK):
            _convert_voice(folder)
            return folder
    raise ResourceError(
        "embedded voice: no folder for its converted copy; set XDG_CACHE_HOME to one that can be written"
    )


def voice_folders() -> list[Path]:
    """Where the converted voice may lie, the preferred place first."""
    name = f"voice-{fingerprint()}-format{FORMAT_VERSION}"
    return [folder / name for folder in cache_folders()]


def _convert_voice(folder: Path) -> None:
    from converters.convert import convert
    from converters.published import open_published

    _remove_incomplete(folder)
    try:
        convert(open_published([DIA], codec=CODEC, offline=True), folder, dtype="float32")
    except UsageError:  # another process has made it meanwhile
        if not _is_complete(folder):
            raise


def _is_complete(folder: Path) -> bool:
    """Whether a copy is there: it appears whole, and what is removed of it later is not looked for."""
    return (folder / "config.json").is_file()


def _remove_incomplete(folder: Path) -> None:
    """Make room where a cleaner of old files, or a user, left a part of a copy."""
    if _is_complete(folder) or not os.path.lexists(folder):
        return
    aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent)) / folder.name
    with suppress(FileNotFoundError):  # another process removes it
        os.rename(folder, aside)
    if _is_complete(aside):  # another process has made it since we looked
        with suppress(OSError):
            os.rename(aside, folder)
    shutil.rmtree(aside.parent, ignore_errors=True)
