"""The port's front door."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlx_port.loading import load
from tts_core.config import FORMAT_VERSION
from tts_core.errors import ResourceError, UsageError, check_arguments
from tts_core.results import GenerationResult
from tts_core.voice.embedded import CODEC, DIA, cache_folders, fingerprint

if TYPE_CHECKING:
    from tts_core.dia.pipeline import DiaPipeline


def generate(text: str, model: Any = None, **arguments: Any) -> GenerationResult:
    """Speak a text with a model: a loaded one, a folder as `load` takes it, or None for the embedded
    voice, a Dia.

    arguments: those of the model's own `generate`. All take `prompt`, `cfg_scale`, `temperature`, `top_k`,
    `top_p`, `seed` and `noise`; Dia `max_frames` and `piece_seconds` besides; what MARS5 takes:
    `Mars5Pipeline.generate`.
    Raises UsageError for an argument that the model does not take.
    """
    pipeline = embedded_voice() if model is None else model
    if isinstance(pipeline, str | Path):
        pipeline = load(pipeline)
    check_arguments(pipeline.generate, arguments)
    return pipeline.generate(text, **arguments)


@lru_cache(maxsize=1)
def embedded_voice() -> DiaPipeline:
    """The voice that comes with the package, converted into the user's cache on first use and loaded once."""
    return load(converted_voice())


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
