"""Speech recognizers: the one inside a wheel, and Whisper where its weights are at hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tts_core.errors import NotFoundError, UsageError
from tts_core.judges.words import NAME, hear, words_of


class Recognizer(NamedTuple):
    """A recognizer. words: of (L,) float32 samples at 16 kHz."""

    name: str
    words: Callable[[np.ndarray], list[str]]


def recognizer(whisper: Path | None) -> Recognizer:
    """Choose pocketsphinx, or Whisper from a folder of weights for faster-whisper or mlx-whisper.

    Raises UsageError for a folder with neither's weights, NotFoundError for a missing package.
    """
    if whisper is None:
        return Recognizer(NAME, lambda samples: [one.word for one in hear(samples)])
    if (whisper / "model.bin").is_file():
        return Recognizer(f"faster-whisper {whisper.name}", _faster_whisper(whisper))
    if any((whisper / name).is_file() for name in ("weights.npz", "weights.safetensors")):
        return Recognizer(f"mlx-whisper {whisper.name}", _mlx_whisper(whisper))
    raise UsageError(
        f"--whisper: {whisper} contains neither model.bin (faster-whisper) nor weights.npz or "
        "weights.safetensors (mlx-whisper)"
    )


def _faster_whisper(folder: Path) -> Callable[[np.ndarray], list[str]]:
    try:
        from faster_whisper import WhisperModel  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise NotFoundError(f"--whisper: {folder} needs faster-whisper; pip install faster-whisper") from None
    model: Any = WhisperModel(str(folder), local_files_only=True)

    def words(samples: np.ndarray) -> list[str]:
        segments, _ = model.transcribe(samples, language="en", condition_on_previous_text=False)
        return words_of(" ".join(segment.text for segment in segments))

    return words


def _mlx_whisper(folder: Path) -> Callable[[np.ndarray], list[str]]:
    try:
        import mlx_whisper  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise NotFoundError(f"--whisper: {folder} needs mlx-whisper; pip install mlx-whisper") from None

    def words(samples: np.ndarray) -> list[str]:
        found = mlx_whisper.transcribe(
            samples, path_or_hf_repo=str(folder), language="en", condition_on_previous_text=False
        )
        return words_of(found["text"])

    return words
