"""Read and write sound files; resample. soundfile and soxr are imported when used."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from tts_core.audio.formats.names import SUFFIXES
from tts_core.audio.formats.writer import SoundWriter
from tts_core.errors import CheckpointError, NotFoundError, ResourceError, UsageError, not_there
from tts_core.files.regular import irregular, opened
from tts_core.files.whole import whole_file
from tts_core.printable import counted

if TYPE_CHECKING:
    import soundfile

MOST_SECONDS = 1800  # of a sound file that is read
MOST_SAMPLES = MOST_SECONDS * 48000
FASTEST = 192_000  # Hz: at a higher rate fewer seconds are read, for memory's sake
RATES = (1000, 1_000_000)  # Hz; resampling from 1 Hz would make a gigabyte of a small file
_BLOCK = 1 << 20  # samples decoded at a time, all channels together


class TooLongError(UsageError):
    """A sound file is longer than may be read: than `seconds`."""

    def __init__(self, path: Path, seconds: float):
        super().__init__(f"audio: {path} is longer than {seconds:.6g} s; give a part of it")
        self.seconds = seconds


def read_audio(
    path: str | os.PathLike[str],
    sample_rate: int,
    *,
    quality: Literal["HQ", "VHQ"] = "VHQ",
    most_seconds: float = MOST_SECONDS,
) -> np.ndarray:
    """Read a sound file as (L,) float32 samples at `sample_rate`, its channels averaged.

    quality: soxr's name for the resampling quality.  most_seconds: as for `read_audio_at_its_rate`.
    Raises as `read_audio_at_its_rate`, and UsageError for a file too short to resample.
    """
    if not RATES[0] <= sample_rate <= RATES[1]:
        raise UsageError(f"sample_rate: {sample_rate!r:.40} is not a rate of {RATES[0]} to {RATES[1]} Hz")
    samples, rate = read_audio_at_its_rate(path, most_seconds=most_seconds)
    mono = resample(samples, rate, sample_rate, quality=quality)
    if not len(mono):
        raise UsageError(
            f"audio: {path} is only {counted(len(samples), 'sample')} long at {rate} Hz; "
            "give at least a second"
        )
    return mono


def read_audio_at_its_rate(
    path: str | os.PathLike[str], *, most_seconds: float = MOST_SECONDS, most_samples: float = MOST_SAMPLES
) -> tuple[np.ndarray, int]:
    """Read a sound file as (L,) float32 samples, its channels averaged, and its sample rate in Hz.

    most_seconds, most_samples: of a file; a longer one is decoded no further, and refused.
    Raises NotFoundError for a missing file; UsageError for one that cannot be decoded, is empty, or contains
    NaN or infinite samples, TooLongError for one that is too long; ResourceError for a failing disk.
    """
    import soundfile

    path = _named("audio", path)
    try:
        with opened(path) as file:
            file.read(1)
    except FileNotFoundError:
        raise not_there("audio", path) from None
    except CheckpointError as error:
        raise UsageError(f"audio: {error}; give a sound file") from None
    try:
        # bytes: a name need not be UTF-8
        with soundfile.SoundFile(os.fsencode(path)) as sound:  # pyright: ignore[reportArgumentType]
            most = min(most_samples, most_seconds * min(sound.samplerate, FASTEST))
            samples, rate = _decoded(sound, path, int(most)), sound.samplerate
    except (soundfile.SoundFileError, RuntimeError, OSError) as error:
        new = f"{path.stem}{'_new' * (path.suffix.lower() == '.wav')}.wav"
        raise UsageError(
            f"audio: {path} cannot be decoded; convert it to WAV: ffmpeg -i {path.name} {new}"
        ) from error
    if not len(samples):
        raise UsageError(f"audio: {path} is empty; give a file with sound")
    if not np.isfinite(samples).all():
        raise UsageError(f"audio: {path} contains NaN or infinite samples; export it again")
    return samples, int(rate)


def _decoded(sound: soundfile.SoundFile, path: Path, most: int) -> np.ndarray:
    """Decode block by block, and no further than is allowed: a header may lie, and silence packs well."""
    low, high = RATES
    if not low <= sound.samplerate <= high:
        raise UsageError(
            f"audio: {path} has {sound.samplerate} samples a second; give one of {low} to {high}"
        )
    blocks, length = [np.zeros(0, np.float32)], 0
    size = max(1, _BLOCK // sound.channels)
    while len(block := sound.read(min(size, most + 1 - length), dtype="float32", always_2d=True)):
        blocks.append(block.mean(axis=1))
        length += len(block)
        if length > most:
            raise TooLongError(path, most / sound.samplerate)
    return np.concatenate(blocks)


def resample(
    samples: np.ndarray, rate: int, new_rate: int, *, quality: Literal["HQ", "VHQ"] = "VHQ"
) -> np.ndarray:
    """Resample (L,) float32 samples at `rate` Hz to (L * new_rate / rate,) ± 1 samples at `new_rate` Hz."""
    if rate == new_rate:
        return samples
    import soxr

    return soxr.resample(samples, rate, new_rate, quality=quality)


def check_output(path: str | os.PathLike[str]) -> None:
    """Check, before any work, that a sound file can be written to `path`.

    Raises UsageError for an unsupported suffix, a folder, or a folder without write permission; NotFoundError
    for a missing folder, or a missing library of its format.
    """
    SUFFIXES[check_place("output", path, SUFFIXES).suffix.lower()].check()


def check_place(what: str, path: str | os.PathLike[str], suffixes: Collection[str]) -> Path:
    """The path, if a file with one of these suffixes can be written there. what: its name in messages.

    Raises as `check_output`.
    """
    path = _named(what, path)
    try:
        kind = irregular(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        kind = None
    except OSError as error:
        kind = error.strerror
    if kind is not None:
        raise UsageError(f"{what}: {path}: {kind}; give the name of a file")
    if path.suffix.lower() not in suffixes:
        ending = f"ends in {path.suffix!r}" if path.suffix else "has no suffix"
        raise UsageError(f"{what}: {path} {ending}; use {', '.join(suffixes)}")
    folder = path.parent
    if not folder.exists():
        raise NotFoundError(f"{what}: the folder {folder} does not exist; create it first")
    if not folder.is_dir() or not _takes_files(folder):
        raise UsageError(f"{what}: {folder} cannot be written to; choose another folder")
    return path


def _named(what: str, path: str | os.PathLike[str]) -> Path:
    """Return a path. Raises UsageError for one with NUL, which no file has."""
    if "\0" in os.fsdecode(path):
        raise UsageError(f"{what}: {path} has the character NUL in its name; give another name")
    return Path(path)


def _takes_files(folder: Path) -> bool:
    """Check permissions and write a test file: permissions do not cover every file system."""
    if not os.access(folder, os.W_OK | os.X_OK):
        return False
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def write_audio(path: str | os.PathLike[str], samples: np.ndarray, sample_rate: int) -> None:
    """Write (L,) samples, clipped to [-1, 1], in the format of the suffix (tts_core.audio.formats).

    The file appears whole or not at all. Raises as `check_output`, and ResourceError if the disk is full.
    """
    check_output(path)
    path = Path(path)
    try:
        with (
            whole_file(path) as file,
            SoundWriter(file, SUFFIXES[path.suffix.lower()], sample_rate, seekable=True) as sound,
        ):
            sound.write(samples)
    except OSError as error:
        raise ResourceError(
            f"output: {path} could not be written ({error.strerror}); is the disk full?"
        ) from error
