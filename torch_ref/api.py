"""The reference's front door."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch_ref.loading import load
from tts_core.errors import check_arguments
from tts_core.results import GenerationResult
from tts_core.voice.embedded import CODEC, DIA

if TYPE_CHECKING:
    from tts_core.dia.pipeline import DiaPipeline


def generate(text: str, model: Any = None, **arguments: Any) -> GenerationResult:
    """Speak a text with a model: a loaded one, a path or hub id as `load` takes it, or None for the embedded
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
    """The voice that comes with the package, loaded once: float32, so that a seed is the same everywhere."""
    return load(DIA, codec=CODEC, dtype="float32")
