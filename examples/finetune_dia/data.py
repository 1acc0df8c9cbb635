"""Recordings with transcripts: a folder with a `name.txt` for every `name.wav`.

A transcript has the form of a text for the model: turns with their tags; words without a tag become [S1]'s.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tts_core.audio.files import read_audio
from tts_core.dia.config import DiaConfig
from tts_core.dia.text import prepare, tokenize
from tts_core.errors import NotFoundError, UsageError

HELD_OUT = 0.05  # share of recordings that are not trained on
MOST_HELD_OUT = 16


class Recording(NamedTuple):
    """Encoded recording. tokens: (S,) int64.  codes: (T, Q) int64."""

    tokens: np.ndarray
    codes: np.ndarray


def transcripts(folder: Path, config: DiaConfig) -> dict[Path, str]:
    """Read the transcripts of a folder's WAV files as the model reads them; no sound is read.

    Raises NotFoundError and UsageError, naming the file.
    """
    if not folder.is_dir():
        raise NotFoundError(f"data: no folder {folder}; give one with NAME.wav and NAME.txt")
    sounds = sorted(folder.glob("*.wav"))
    if len(sounds) < 2:
        raise UsageError(
            f"data: {folder} contains {len(sounds)} WAV files; give two or more, better hundreds"
        )
    said = {}
    for sound in sounds:
        written = sound.with_suffix(".txt")
        if not written.exists():
            raise NotFoundError(
                f"data: {written.name} is missing; write the transcript of {sound.name} to it"
            )
        try:
            said[sound] = prepare(written.read_text(encoding="utf-8"), config.max_text_bytes)
        except UnicodeDecodeError as error:
            raise UsageError(f"data: {written} is not UTF-8; save it as UTF-8") from error
        except UsageError as error:
            raise UsageError(f"data: {written}: {error}") from error
    return said


def fingerprint(said: dict[Path, str]) -> str:
    """16 hex digits that change with any file name, file size or text."""
    lines = [f"{sound.name}\0{sound.stat().st_size}\0{text}" for sound, text in said.items()]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def encode(said: dict[Path, str], codec: Any, config: DiaConfig) -> Iterator[Recording]:
    """Encode every recording as tokens and codes. codec: of `torch_ref`.

    Raises UsageError for a sound that cannot be read or is longer than the model's window.
    """
    for sound, text in said.items():
        samples = read_audio(sound, codec.sample_rate)
        frames = -(-len(samples) // codec.hop_length)
        if frames > config.max_frames:
            longest = config.max_frames * codec.hop_length / codec.sample_rate
            raise UsageError(
                f"data: {sound} is {len(samples) / codec.sample_rate:.1f} s long, the model's limit is "
                f"{longest:.1f} s; cut it, and its transcript"
            )
        codes = codec.encode(samples[None])[0].cpu().numpy().T
        yield Recording(tokenize(text).astype(np.int64), codes.astype(np.int64))


def save(path: Path, recordings: list[Recording]) -> None:
    """Write encoded recordings, so that they are encoded only once."""
    arrays = {
        f"{kind}{n}": array
        for n, recording in enumerate(recordings)
        for kind, array in recording._asdict().items()
    }
    unfinished = path.with_suffix(".part.npz")
    np.savez_compressed(unfinished, **arrays)  # pyright: ignore[reportArgumentType]
    unfinished.replace(path)


def saved(path: Path) -> list[Recording]:
    """Read the file that `keep` wrote."""
    with np.load(path) as arrays:
        return [Recording(arrays[f"tokens{n}"], arrays[f"codes{n}"]) for n in range(len(arrays.files) // 2)]


def divided(recordings: list[Recording]) -> tuple[list[Recording], list[Recording]]:
    """Split into (training, held out), always the same way for the same data."""
    count = min(MOST_HELD_OUT, max(1, int(HELD_OUT * len(recordings))))
    chosen = set(np.random.default_rng(0).permutation(len(recordings))[:count].tolist())
    return (
        [recording for n, recording in enumerate(recordings) if n not in chosen],
        [recording for n, recording in enumerate(recordings) if n in chosen],
    )
