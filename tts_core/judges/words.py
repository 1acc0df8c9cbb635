"""Word errors of recordings by a recognizer: pocketsphinx, or Whisper if its weights are given."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tts_core.errors import NotFoundError, UsageError
from tts_core.extras import install
from tts_core.text.accents import without_accents

SAMPLE_RATE = 16_000  # Hz
FRAME = SAMPLE_RATE // 100  # pocketsphinx counts in hundredths of a second
NAME = "pocketsphinx 5 (en-us)"


class HeardWord(NamedTuple):
    """Recognized word and its place in the samples."""

    word: str
    start: int
    stop: int


def words_of(text: str) -> list[str]:
    """Split a text into lower-case words without tags, punctuation and accents."""
    return re.findall(r"[a-z']+", without_accents(untagged(text), str.isascii)[0].lower())


def untagged(text: str) -> str:
    """Replace speaker tags by spaces."""
    return re.sub(r"\[S\d\]", " ", text)


@lru_cache(maxsize=1)
def _decoder() -> Any:
    try:
        from pocketsphinx import Decoder  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise NotFoundError(f"judge: pocketsphinx is not installed; {install('judge')}") from None
    return Decoder(samprate=SAMPLE_RATE, loglevel="FATAL")


def hear(samples: np.ndarray) -> list[HeardWord]:
    """Recognize the words in (L,) float samples at 16 kHz.

    The decoder is reset first: it adapts to a voice, and a result should not depend on the recordings before.
    """
    decoder = _decoder()
    decoder.reinit_feat()  # setting the cepstral means alone is not enough
    quiet = np.zeros(SAMPLE_RATE // 5)
    padded = np.concatenate([quiet, np.clip(samples, -1, 1) * 32767, quiet]).astype(np.int16)
    decoder.start_utt()
    decoder.process_raw(padded.tobytes(), full_utt=True)
    decoder.end_utt()
    heard = []
    for segment in decoder.seg() or ():
        word = re.sub(r"\(\d+\)$", "", segment.word)
        if re.match(r"[a-z]", word):
            start, stop = (
                frame * FRAME - len(quiet) for frame in (segment.start_frame, segment.end_frame + 1)
            )
            heard.append(HeardWord(word, max(0, start), max(0, stop)))
    return heard


class Recognizer(NamedTuple):
    """A recognizer. words: of (L,) float32 samples at 16 kHz."""

    name: str
    words: Callable[[np.ndarray], list[str]]


def recognizer(whisper: Path | None) -> Recognizer:
    """Choose pocketsphinx, or Whisper from a folder of weights for faster-whisper or mlx-whisper.

    Raises UsageError for a folder with neither's weights, NotFoundError for a missing package.
    """
    if whisper is None:
        return Recognizer(NAME, lambda samples: [word.word for word in hear(samples)])
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


def aligned(wanted: Sequence[str], heard: Sequence[str]) -> list[tuple[int | None, int | None]]:
    """Align words with the fewest errors: pairs of places, None for a word without a partner."""
    cost = np.zeros((len(wanted) + 1, len(heard) + 1), int)
    cost[:, 0], cost[0] = np.arange(len(wanted) + 1), np.arange(len(heard) + 1)
    for i, word in enumerate(wanted, start=1):
        for j, other in enumerate(heard, start=1):
            cost[i, j] = min(cost[i - 1, j - 1] + (word != other), cost[i - 1, j] + 1, cost[i, j - 1] + 1)
    pairs: list[tuple[int | None, int | None]] = []
    i, j = len(wanted), len(heard)
    while i or j:
        if i and j and cost[i, j] == cost[i - 1, j - 1] + (wanted[i - 1] != heard[j - 1]):
            i, j = i - 1, j - 1
            pairs.append((i, j))
        elif i and cost[i, j] == cost[i - 1, j] + 1:
            i -= 1
            pairs.append((i, None))
        else:
            j -= 1
            pairs.append((None, j))
    return pairs[::-1]


def word_errors(wanted: Sequence[str], heard: Sequence[str]) -> int:
    """Count substitutions, deletions and insertions."""
    return sum(i is None or j is None or wanted[i] != heard[j] for i, j in aligned(wanted, heard))
