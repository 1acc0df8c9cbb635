"""The formats: names, media types, sample rates, and the class that writes each. Libraries load when used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Protocol

import numpy as np

from tts_core.audio.formats.sink import Sink
from tts_core.errors import NotFoundError

INSTALL = "PyAV is not installed; pip install 'mlx-port[formats]'"
MPEG_RATES = (8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000)


class Encoder(Protocol):
    """Encodes samples into a sink; `tts_core.audio.formats` has one class a library."""

    def write(self, samples: np.ndarray) -> None:
        """Encode the next (L,) float32 samples in [-1, 1]."""
        ...

    def close(self) -> None:
        """Write the rest, and the header again where the sink can seek."""
        ...


@dataclass(frozen=True)
class Format:
    """Facts about one format.

    held_seconds: of sound that a stream holds back, so that a shorter one is sent with its length.
    media_type: may contain {rate}.  rates: supported sample rates in Hz, ascending; empty: any.
    encoder: module and class.  with_pyav: the same of the encoder that is preferred if PyAV is installed.
    """

    name: str
    media_type: str
    rates: tuple[int, ...] = ()
    encoder: str | None = None
    with_pyav: str | None = None
    held_seconds: float = 0.0

    @property
    def is_installed(self) -> bool:
        """True if a library that writes the format is installed."""
        return self.encoder is not None or _has_pyav()

    def check(self) -> None:
        """Raise NotFoundError, naming the extra, if the format's library is not installed."""
        if not self.is_installed:
            raise NotFoundError(f"{self.name}: {INSTALL}")

    def rate(self, sample_rate: int) -> int:
        """The supported rate to resample to: the next one up, else the highest."""
        higher = [rate for rate in self.rates if rate >= sample_rate]
        return (higher or [*self.rates[-1:], sample_rate])[0]

    def open(self, sink: Sink, sample_rate: int) -> Encoder:
        """Begin to encode. Raises as `check`."""
        self.check()
        place = self.with_pyav if self.with_pyav is not None and _has_pyav() else self.encoder
        module, _, name = str(place).partition(":")
        encoder: Callable[[Sink, int], Encoder] = getattr(import_module(module), name)
        return encoder(sink, sample_rate)


def _has_pyav() -> bool:
    return find_spec("av") is not None


_HERE = "tts_core.audio.formats"
FORMATS: Mapping[str, Format] = {
    found.name: found
    for found in (
        Format("wav", "audio/wav", encoder=f"{_HERE}.raw:Wav"),
        Format("flac", "audio/flac", encoder=f"{_HERE}.libsndfile:Flac", held_seconds=300),
        Format("mp3", "audio/mpeg", MPEG_RATES, encoder=f"{_HERE}.libsndfile:Mp3"),
        Format("opus", "audio/ogg", (48000,), f"{_HERE}.libsndfile:Opus", f"{_HERE}.pyav:Opus"),
        Format("aac", "audio/aac", MPEG_RATES, with_pyav=f"{_HERE}.pyav:Aac"),
        Format("pcm", "audio/pcm;rate={rate};channels=1", encoder=f"{_HERE}.raw:Pcm"),
    )
}
SUFFIXES = {f".{name}": found for name, found in FORMATS.items()}
