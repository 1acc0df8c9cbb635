"""The port's front door."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from mlx_port.dia.generate import DiaPipeline
from mlx_port.loading import load
from tts_core.converted import FORMAT_VERSION
from tts_core.embedded_voice import CODEC, DIA, cache_folders, fingerprint
from tts_core.errors import ResourceError, UsageError
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
    """Speak a text with a model: a loaded one, a folder as `load` takes it, or None for the embedded voice.

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
    """The voice that comes with the package, converted into the user's cache on first use and loaded once."""
    return load(converted_voice())


def converted_voice() -> Path:
    """The folder that holds the embedded voice in our layout; made on first use.

    $XDG_CACHE_HOME/mlx-port (or ~/.cache/mlx-port), a temporary folder where that cannot be written.
    """
    for folder in voice_folders():
        if (folder / "config.json").is_file():
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

    try:
        convert(open_published([DIA], codec=CODEC, offline=True), folder, dtype="float32")
    except UsageError:  # another process has made it meanwhile
        if not (folder / "config.json").is_file():
            raise
