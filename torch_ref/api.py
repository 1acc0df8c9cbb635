"""Speak a text with the PyTorch reference in one call."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, Unpack, overload

from torch_ref.dia.pipeline import DiaPipeline
from torch_ref.pipelines import load
from tts_core.pipeline import Generates, Pipeline, Progress, PromptLike, Streams
from tts_core.results import GenerationResult
from tts_core.voice.embedded import CODEC, DIA

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

    model: a loaded model, which types the other arguments, a path or hub id as for `load`, or None for the
    embedded voice, a Dia.
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
    """Load the voice included in the package, once; in float32: a seed gives the same speech everywhere."""
    return DiaPipeline.load(DIA, codec=CODEC, dtype="float32")
