"""Speak a text with the MLX port in one call."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, Unpack, overload

from mlx_port.dia.pipeline import DiaPipeline
from mlx_port.loading import load
from tts_core.config import FORMAT_VERSION
from tts_core.errors import ResourceError, SpeechError, UsageError
from tts_core.files.private import make_folder
from tts_core.files.record import Record
from tts_core.pipeline import Generates, Pipeline, Progress, PromptLike, Streams
from tts_core.results import GenerationResult
from tts_core.voice.embedded import CODEC, DIA, cache_folders, fingerprint

if TYPE_CHECKING:
    from tts_core.dia.options import DiaChanges, DiaOptions
    from tts_core.dia2.options import Dia2Changes, Dia2Options
    from tts_core.mars5.options import Mars5Changes, Mars5Options
    from tts_core.metavoice.options import MetaVoiceChanges, MetaVoiceOptions

Tell = Callable[[Progress], None]
P = ParamSpec("P")


@overload
def generate(text: str, model: Generates[P], *args: P.args, **kwargs: P.kwargs) -> GenerationResult: ...
@overload
def generate(
    text: str,
    model: str | Path | None = None,
    *,
    prompt: PromptLike = None,
    options: DiaOptions | None = None,
    progress: Tell | None = None,
    cancel: threading.Event | None = None,
    **changes: Unpack[DiaChanges],
) -> GenerationResult: ...
@overload
def generate(
    text: str,
    model: str | Path,
    *,
    prompt: PromptLike = None,
    options: Dia2Options | None = None,
    progress: Tell | None = None,
    cancel: threading.Event | None = None,
    **changes: Unpack[Dia2Changes],
) -> GenerationResult: ...
@overload
def generate(
    text: str,
    model: str | Path,
    *,
    prompt: PromptLike = None,
    options: Mars5Options | None = None,
    progress: Tell | None = None,
    cancel: threading.Event | None = None,
    **changes: Unpack[Mars5Changes],
) -> GenerationResult: ...
@overload
def generate(
    text: str,
    model: str | Path,
    *,
    prompt: PromptLike = None,
    options: MetaVoiceOptions | None = None,
    progress: Tell | None = None,
    cancel: threading.Event | None = None,
    **changes: Unpack[MetaVoiceChanges],
) -> GenerationResult: ...
def generate(
    text: str,
    model: Any = None,
    *,
    prompt: PromptLike = None,
    options: Any = None,
    progress: Tell | None = None,
    cancel: threading.Event | None = None,
    **changes: Any,
) -> GenerationResult:
    """Speak a text.

    model: a loaded model, which types the other arguments, a folder as for `load`, or None for the embedded
    voice, a Dia.
    prompt: reference speech.
    options: the model's options, such as DiaOptions; `changes` replace some of their fields, as seed=1.
    progress, cancel: see tts_core.pipeline.
    Raises UsageError for an option that the model does not have, and the errors of the model's `generate`.
    """
    return _pipeline(model).generate(
        text, prompt=prompt, options=options, progress=progress, cancel=cancel, **changes
    )


@overload
def stream(
    text: str | Iterable[str], model: Streams[P], *args: P.args, **kwargs: P.kwargs
) -> Iterator[GenerationResult]: ...
@overload
def stream(
    text: str | Iterable[str],
    model: str | Path | None = None,
    *,
    prompt: PromptLike = None,
    options: DiaOptions | None = None,
    progress: Tell | None = None,
    cancel: threading.Event | None = None,
    **changes: Unpack[DiaChanges],
) -> Iterator[GenerationResult]: ...
@overload
def stream(
    text: str | Iterable[str],
    model: str | Path,
    *,
    prompt: PromptLike = None,
    options: Dia2Options | None = None,
    progress: Tell | None = None,
    cancel: threading.Event | None = None,
    **changes: Unpack[Dia2Changes],
) -> Iterator[GenerationResult]: ...
@overload
def stream(
    text: str | Iterable[str],
    model: str | Path,
    *,
    prompt: PromptLike = None,
    options: Mars5Options | None = None,
    progress: Tell | None = None,
    cancel: threading.Event | None = None,
    **changes: Unpack[Mars5Changes],
) -> Iterator[GenerationResult]: ...
@overload
def stream(
    text: str | Iterable[str],
    model: str | Path,
    *,
    prompt: PromptLike = None,
    options: MetaVoiceOptions | None = None,
    progress: Tell | None = None,
    cancel: threading.Event | None = None,
    **changes: Unpack[MetaVoiceChanges],
) -> Iterator[GenerationResult]: ...
def stream(
    text: str | Iterable[str],
    model: Any = None,
    *,
    prompt: PromptLike = None,
    options: Any = None,
    progress: Tell | None = None,
    cancel: threading.Event | None = None,
    **changes: Any,
) -> Iterator[GenerationResult]:
    """Speak a text part by part.

    text: or an iterable of its pieces, cut anywhere, as a language model writes them: each sentence is spoken
    as soon as it is complete; a model that reads while it speaks does not wait for sentences.
    Other arguments and errors as in `generate`; errors of the pieces are raised as they come.
    """
    return _pipeline(model).stream(
        text, prompt=prompt, options=options, progress=progress, cancel=cancel, **changes
    )


def _pipeline(model: Pipeline | str | Path | None) -> Pipeline:
    if isinstance(model, str | Path):
        return load(model)
    return embedded_voice() if model is None else model


@lru_cache(maxsize=1)
def embedded_voice() -> DiaPipeline:
    """Load the voice included in the package, once; the first use converts it into the user's cache."""
    return DiaPipeline.load(converted_voice())


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
