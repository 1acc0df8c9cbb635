"""Outputs of `mlx-port generate`: a file, whole or growing, or stdout."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import numpy as np

from tts_core.audio.files import check_output, write_audio
from tts_core.audio.formats.names import FORMATS, SUFFIXES, Format
from tts_core.audio.formats.writer import SoundWriter
from tts_core.errors import GenerationError, ResourceError, SpeechError, UsageError, did_you_mean
from tts_core.memory.computer import free_disk_bytes
from tts_core.results import GenerationResult

DEFAULT_OUTPUT = "speech.wav"
STDOUT = "-"
BYTES_PER_SECOND = 2 * 48_000  # of an uncompressed file, at a rate that no model exceeds


@dataclass(frozen=True)
class Output:
    """The place and the format of the speech.

    path: None is stdout.  fresh: an existing file is kept, and the speech gets the next free name.
    """

    path: Path | None
    form: Format
    fresh: bool = False

    def check_space(self, seconds: float) -> None:
        """Raise ResourceError unless the disk has room for these seconds of speech and half as many more."""
        if self.path is None:
            return
        folder = self.path.absolute().parent
        free, needed = free_disk_bytes(folder), round(1.5 * seconds * BYTES_PER_SECOND)
        if free < needed:
            raise ResourceError(
                f"output: the disk of {self.path} has {free / 1e6:,.1f} MB free, {needed / 1e6:,.1f} MB may "
                "be needed; free some space, or choose another folder"
            )

    def write(self, samples: np.ndarray, sample_rate: int) -> Path:
        """Write all of the speech at once, (L,) samples, to the file, and return its name."""
        with self._claimed() as path:
            write_audio(path, samples, sample_rate)
        return path

    @contextmanager
    def growing(self, sample_rate: int) -> Iterator[tuple[Path | str, SoundWriter]]:
        """Open the output for speech that comes piece by piece; what is written remains after an error.

        Yields its name, STDOUT for stdout, and the writer.
        """
        if self.path is None:
            with SoundWriter(sys.stdout.buffer, self.form, sample_rate, seekable=False) as sound:
                yield STDOUT, sound
            sys.stdout.buffer.flush()
            return
        with (
            self._claimed() as path,
            _named(path),
            open(path, "wb", buffering=0) as file,  # an interrupted WAV is valid
            SoundWriter(file, self.form, sample_rate, seekable=True) as sound,
        ):
            yield path, sound

    @contextmanager
    def _claimed(self) -> Iterator[Path]:
        """Yield the file's name. A fresh one exists from now on, and vanishes if it is empty in the end."""
        assert self.path is not None, "stdout takes its speech piece by piece"
        path = _next_free(self.path) if self.fresh else self.path
        try:
            yield path
        except BaseException:
            if self.fresh and not path.stat().st_size:
                path.unlink()
            raise


def _next_free(path: Path) -> Path:
    """Create the first of speech.wav, speech-2.wav, speech-3.wav, ... that does not exist."""
    names = (path if number == 1 else path.with_stem(f"{path.stem}-{number}") for number in count(1))
    for name in names:
        try:
            name.touch(exist_ok=False)
            return name
        except FileExistsError:
            continue
    raise AssertionError("numbers do not end")


def check_numbers(piece: GenerationResult) -> None:
    """Raise GenerationError for NaN or infinity in a piece."""
    if not np.isfinite(piece.audio).all():
        raise GenerationError(
            "generation: the samples contain NaN or infinity; check the model with: mlx-port verify"
        )


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Turn an OSError of writing into one that names the file."""
    try:
        yield
    except OSError as error:
        if isinstance(error, SpeechError):
            raise
        raise ResourceError(
            f"output: {path} could not be written to the end ({error.strerror or error}); is the disk full?"
        ) from error


def choose_output(output: str | None, form: str | None, *, play: bool) -> Output | None:
    """Check the flags --output and --format before any work; None if the speech is only played.

    Raises UsageError for an unknown or missing format, for sound on a terminal, and as `check_output`.
    """
    if form is not None and output != STDOUT:
        raise UsageError("format: a file has the format of its suffix; leave --format out, or use --output -")
    if output == STDOUT:
        if sys.stdout is None:
            raise UsageError("output: stdout is closed; pipe the sound on, or give the name of a file")
        if sys.stdout.isatty():
            raise UsageError("output: stdout is a terminal; pipe the sound on, or give the name of a file")
        return Output(None, _format(form or "wav"))
    if output is None and play:
        return None
    path = Path(output or DEFAULT_OUTPUT)
    check_output(path)
    return Output(path, SUFFIXES[path.suffix.lower()], fresh=output is None)


def _format(name: str) -> Format:
    if name not in FORMATS:
        hint = did_you_mean(name, FORMATS)
        raise UsageError(
            f"format: {name!r} is not one of {', '.join(FORMATS)}" + (f"; {hint}" if hint else "")
        )
    FORMATS[name].check()
    return FORMATS[name]
