"""Where `mlx-port generate` writes: a file, whole or growing, or stdout."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tts_core.audio.files import check_output, write_audio
from tts_core.audio.formats import FORMATS, SUFFIXES, Format, SoundWriter
from tts_core.errors import UsageError, did_you_mean

DEFAULT_OUTPUT = "speech.wav"
STDOUT = "-"


@dataclass(frozen=True)
class Output:
    """The place and the format of the speech. path: None is stdout."""

    path: Path | None
    form: Format

    def __str__(self) -> str:
        return "stdout" if self.path is None else str(self.path)

    def write(self, samples: np.ndarray, sample_rate: int) -> None:
        """Write all of the speech at once, (L,) samples, to the file."""
        assert self.path is not None, "stdout takes its speech piece by piece"
        write_audio(self.path, samples, sample_rate)

    @contextmanager
    def growing(self, sample_rate: int) -> Iterator[SoundWriter]:
        """Open the output for speech that comes piece by piece; what is written remains after an error."""
        if self.path is None:
            with SoundWriter(sys.stdout.buffer, self.form, sample_rate, seekable=False) as sound:
                yield sound
            sys.stdout.buffer.flush()
            return
        with (
            open(self.path, "wb", buffering=0) as file,  # an interrupted WAV is valid
            SoundWriter(file, self.form, sample_rate, seekable=True) as sound,
        ):
            yield sound


def choose_output(output: str | None, form: str | None, *, play: bool) -> Output | None:
    """Check the flags --output and --format before any work; None if the speech is only played.

    Raises UsageError for an unknown or missing format, for sound on a terminal, and as `check_output`.
    """
    if form is not None and output != STDOUT:
        raise UsageError("format: a file has the format of its suffix; leave --format out, or use --output -")
    if output == STDOUT:
        if sys.stdout is None or sys.stdout.isatty():
            raise UsageError("output: stdout is a terminal; pipe the sound on, or give the name of a file")
        return Output(None, _format(form or "wav"))
    if output is None and play:
        return None
    path = Path(output or DEFAULT_OUTPUT)
    check_output(path)
    return Output(path, SUFFIXES[path.suffix.lower()])


def _format(name: str) -> Format:
    if name not in FORMATS:
        hint = did_you_mean(name, FORMATS)
        raise UsageError(
            f"format: {name!r} is not one of {', '.join(FORMATS)}" + (f"; {hint}" if hint else "")
        )
    FORMATS[name].check()
    return FORMATS[name]
