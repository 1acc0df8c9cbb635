"""The reference's front door."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from torch_ref.dia.generate import DiaPipeline
from torch_ref.loading import load
from tts_core.embedded_voice import CODEC, DIA
from tts_core.noise import Noise
from tts_core.results import GenerationResult, Prompt


def generate(
    text: str,
    model: str | Path | DiaPipeline | None = None,
    *,
    prompt: Prompt | None = None,
    temperature: float | None = None,
    cfg_scale: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    max_frames: int | None = None,
    seed: int | None = None,
    noise: Noise | None = None,
) -> GenerationResult:
    """Speak a text with a model: a loaded one, a path or hub id as `load` takes it, or None for the embedded
    voice.

    The other arguments are those of `DiaPipeline.generate`.
    """
    pipeline = embedded_voice() if model is None else model
    if not isinstance(pipeline, DiaPipeline):
        pipeline = load(pipeline)
    return pipeline.generate(
        text,
        prompt=prompt,
        temperature=temperature,
        cfg_scale=cfg_scale,
        top_k=top_k,
        top_p=top_p,
        max_frames=max_frames,
        seed=seed,
        noise=noise,
    )


@lru_cache(maxsize=1)
def embedded_voice() -> DiaPipeline:
    """The voice that comes with the package, loaded once: float32, so that a seed is the same everywhere."""
    return load(DIA, codec=CODEC, dtype="float32")
