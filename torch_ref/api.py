"""Speak a text with the PyTorch reference in one call."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from torch_ref.dia.pipeline import DiaPipeline
from torch_ref.loading import load
from tts_core.pipeline import Pipeline, Progress, PromptLike
from tts_core.results import GenerationResult
from tts_core.voice.embedded import CODEC, DIA


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

    model: a loaded model, a path or hub id as for `load`, or None for the embedded voice, a Dia.
    prompt: reference speech.  options: the model's options, such as DiaOptions; `changes` replace some of
    their fields, as seed=1.  progress, cancel: see tts_core.pipeline.
    Raises UsageError for an option that the model does not have, and the errors of the model's `generate`.
    """
    return _pipeline(model).generate(
        text, prompt=prompt, options=options, progress=progress, cancel=cancel, **changes
    )


def stream(
    text: str | Iterable[str],
    model: Pipeline | str | Path | None = None,
    *,
    prompt: PromptLike = None,
    options: Any = None,
    progress: Callable[[Progress], None] | None = None,
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
