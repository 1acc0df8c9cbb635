"""The embedded voice's converted copy, in the user's cache."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from tts_core.config import FORMAT_VERSION
from tts_core.errors import ResourceError, SpeechError, UsageError
from tts_core.files.private import make_folder
from tts_core.files.record import Record
from tts_core.voice.embedded import CODEC, DIA, cache_folders, fingerprint


def converted_voice() -> Path:
    """Return the folder of the converted embedded voice; the first call converts it.

    It is in $XDG_CACHE_HOME/mlx-port (or ~/.cache/mlx-port), or in a temporary folder if that is read-only or
    full.
    """
    full = None
    for folder in voice_folders():
        if _is_complete(folder):
            return folder
        try:
            make_folder(folder.parent)
        except OSError:
            continue
        if os.access(folder.parent, os.W_OK):
            try:
                _convert_voice(folder)
            except ResourceError as error:
                full = error
                continue
            return folder
    raise ResourceError(
        "embedded voice: no writable folder with room for its converted copy; set XDG_CACHE_HOME to one"
    ) from full


def voice_folders() -> list[Path]:
    """List the possible folders of the converted voice, the preferred one first."""
    name = f"voice-{fingerprint()}-format{FORMAT_VERSION}"
    return [folder / name for folder in cache_folders()]


def _convert_voice(folder: Path) -> None:
    from converters.convert import convert
    from converters.published import open_published

    _remove_incomplete(folder)
    try:
        convert(open_published([DIA], codec=CODEC, offline=True), folder, dtype="float32")
    except UsageError:  # another process has converted it meanwhile
        if not _is_complete(folder):
            raise


def _is_complete(folder: Path) -> bool:
    """Return True if a copy exists with all files as they were written; a cleaner may have removed some.

    Their hashes are compared: 15 ms.
    """
    try:
        record = Record.read(folder)
        record.check(record.parts())
    except (SpeechError, OSError):
        return False
    return True


def _remove_incomplete(folder: Path) -> None:
    """Remove an incomplete copy, left by a cleanup of old files or by a user."""
    if _is_complete(folder) or not os.path.lexists(folder):
        return
    aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent)) / folder.name
    with suppress(FileNotFoundError):  # another process removes it
        os.rename(folder, aside)
    if _is_complete(aside):  # another process has converted it since the check
        with suppress(OSError):
            os.rename(aside, folder)
    shutil.rmtree(aside.parent, ignore_errors=True)
