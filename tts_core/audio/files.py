"""Read and write sound files; resample. soundfile and soxr are imported when used."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tts_core.audio.formats.names import SUFFIXES
from tts_core.audio.formats.writer import SoundWriter
from tts_core.audio.recordings import check_scale
from tts_core.audio.streams import MixedError, streams
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
    if len(samples) * sample_rate < rate:
        raise UsageError(
            f"audio: {path} is only {counted(len(samples), 'sample')} long at {rate} Hz; "
            "give at least a second"
        )
    return resample(samples, rate, sample_rate, quality=quality)


def read_audio_at_its_rate(
    path: str | os.PathLike[str], *, most_seconds: float = MOST_SECONDS, most_samples: float = MOST_SAMPLES
) -> tuple[np.ndarray, int]:
    """Read a sound file as (L,) float32 samples, its channels averaged, and its sample rate in Hz.

    Of channels in opposite phase the loudest counts. A joined file is read whole.
    most_seconds, most_samples: of a file; a longer one is decoded no further, and refused.
    Raises NotFoundError for a missing file; UsageError for one that cannot be decoded, is empty, contains NaN
    or infinite samples, or has a peak above recordings.LOUDEST, TooLongError for one that is too long;
    ResourceError for a failing disk.
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
    blocks, length, rate = list[np.ndarray](), 0, 0
    try:
        with opened(path) as file:
            for source in streams(file):
                # bytes: a name need not be UTF-8
                where: Any = source or os.fsencode(path)
                with soundfile.SoundFile(where) as sound:
                    rate = rate or sound.samplerate
                    if sound.samplerate != rate:
                        raise MixedError("its parts differ in rate")
                    most = int(min(most_samples, most_seconds * min(rate, FASTEST)))
                    blocks.append(_decoded(sound, path, most, length))
                    length += len(blocks[-1])
    except (soundfile.SoundFileError, RuntimeError, OSError) as error:
        new = f"{path.stem}{'_new' if path.suffix.lower() == '.wav' else ''}.wav"
        why = f": {error}" if isinstance(error, MixedError) else ""
        raise UsageError(
            f"audio: {path} cannot be decoded{why}; convert it to WAV: ffmpeg -i {path.name} {new}"
        ) from error
    samples = np.concatenate(blocks)
    if not len(samples):
        raise UsageError(f"audio: {path} is empty; give a file with sound")
    if not np.isfinite(samples).all():
        raise UsageError(f"audio: {path} contains NaN or infinite samples; export it again")
    check_scale(samples, f"audio: {path}")
    return samples, int(rate)


def _decoded(sound: soundfile.SoundFile, path: Path, most: int, before: int) -> np.ndarray:
    """Decode block by block, and no further than is allowed: a header may lie, and silence packs well.

    most: samples, with the `before` of earlier sounds in the file.
    """
    low, high = RATES
    if not low <= sound.samplerate <= high:
        raise UsageError(
            f"audio: {path} has {sound.samplerate} samples a second; give one of {low} to {high}"
        )
    blocks, of_sum, of_each = [np.zeros(0, np.float32)], 0.0, np.zeros(sound.channels)
    for block in _blocks(sound, path, most, before):
        blocks.append(block.mean(axis=1))
        of_sum += np.square(sound.channels * blocks[-1], dtype=np.float64).sum()
        of_each += np.square(block, dtype=np.float64).sum(axis=0)
    if of_sum < of_each.max() / 2:  # of channels that are not in opposite phase it is no less than of one
        sound.seek(0)
        loudest = int(of_each.argmax())
        blocks = [block[:, loudest].copy() for block in _blocks(sound, path, most, before)]
    return np.concatenate(blocks)


def _blocks(sound: soundfile.SoundFile, path: Path, most: int, length: int) -> Iterator[np.ndarray]:
    size = max(1, _BLOCK // sound.channels)
    while len(block := sound.read(min(size, most + 1 - length), dtype="float32", always_2d=True)):
        length += len(block)
        yield block
        if length > most:
            raise TooLongError(path, most / sound.samplerate)


def resample(
    samples: np.ndarray, rate: int, new_rate: int, *, quality: Literal["HQ", "VHQ"] = "VHQ"
) -> np.ndarray:
    """Resample (L,) float32 samples at `rate` Hz to (ceil(L * new_rate / rate),) samples at `new_rate` Hz.

    Source: librosa.resample, zeros at the end included.
    """
    if rate == new_rate:
        return samples
    import soxr

    resampled = soxr.resample(samples, rate, new_rate, quality=quality)
    length = math.ceil(len(samples) * (new_rate / rate))
    return np.pad(resampled, (0, max(0, length - len(resampled))))[:length]


def check_output(path: str | os.PathLike[str]) -> None:
    """Check, before any work, that a sound file can be written to `path`.

    Raises UsageError for an unsupported suffix, a folder, or a folder without write permission; NotFoundError
    for a missing folder, or a missing library of its format.
    """
    SUFFIXES[check_target("output", path, SUFFIXES).suffix.lower()].check()


def check_target(what: str, path: str | os.PathLike[str], suffixes: Collection[str]) -> Path:
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
