"""Speak a text with the PyTorch reference in one call."""

from __future__ import annotations

import threading
from collections.abc import Callable
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
    pipeline = embedded_voice() if model is None else model
    if isinstance(pipeline, str | Path):
        pipeline = load(pipeline)
    return pipeline.generate(
        text, prompt=prompt, options=options, progress=progress, cancel=cancel, **changes
    )


@lru_cache(maxsize=1)
def embedded_voice() -> DiaPipeline:
    """Load the voice included in the package, once; in float32: a seed gives the same speech everywhere."""
    return DiaPipeline.load(DIA, codec=CODEC, dtype="float32")
