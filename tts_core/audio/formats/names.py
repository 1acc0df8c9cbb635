"""The formats: names, media types, sample rates, and the class that writes each.

Help texts list them, so nothing heavy is imported here: `writer` loads the classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec

from tts_core.errors import NotFoundError
from tts_core.extras import install

MPEG_RATES = (8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000)


@dataclass(frozen=True)
class Format:
    """Facts about one format.

    held_seconds: seconds of sound that a stream holds back, so that a shorter sound is sent with its length.
    media_type: may contain {rate}.
    rates: supported sample rates in Hz, ascending; empty: any.
    encoder: module and class.
    with_pyav: module and class of the preferred encoder if PyAV is installed.
    bytes_per_second: of a file at 44.1 kHz, roughly.
    is_raw: without a header, which has the rate.
    is_read: `read_audio` decodes it.
    """

    name: str
    media_type: str
    rates: tuple[int, ...] = ()
    encoder: str | None = None
    with_pyav: str | None = None
    held_seconds: float = 0.0
    bytes_per_second: int = 90_000
    is_raw: bool = False
    is_read: bool = True

    @property
    def is_installed(self) -> bool:
        """True if a library that writes the format is installed."""
        return self.encoder is not None or _has_pyav()

    def check(self) -> None:
        """Raise NotFoundError, naming the extra, if the format's library is not installed."""
        if not self.is_installed:
            raise NotFoundError(f"{self.name}: PyAV is not installed; {install('formats')}")

    def rate(self, sample_rate: int) -> int:
        """The supported rate to resample to: the next one up, else the highest."""
        higher = [rate for rate in self.rates if rate >= sample_rate]
        return (higher or [*self.rates[-1:], sample_rate])[0]

    @property
    def _module(self) -> str:
        """Module and class of the encoder, "module:class". Raises as `check`."""
        self.check()
        return self.with_pyav if self.with_pyav is not None and _has_pyav() else str(self.encoder)


def _has_pyav() -> bool:
    return find_spec("av") is not None


_HERE = "tts_core.audio.formats"
FORMATS: Mapping[str, Format] = {
    found.name: found
    for found in (
        Format("wav", "audio/wav", encoder=f"{_HERE}.raw:Wav"),
        Format(
            "flac",
            "audio/flac",
            encoder=f"{_HERE}.libsndfile:Flac",
            held_seconds=300,
            bytes_per_second=60_000,
        ),
        Format(
            "mp3",
            "audio/mpeg",
            MPEG_RATES,
            encoder=f"{_HERE}.libsndfile:Mp3",
            bytes_per_second=20_000,
        ),
        Format(
            "opus",
            "audio/ogg",
            (48000,),
            f"{_HERE}.libsndfile:Opus",
            f"{_HERE}.pyav:Opus",
            bytes_per_second=8_000,
        ),
        Format(
            "aac",
            "audio/aac",
            MPEG_RATES,
            with_pyav=f"{_HERE}.pyav:Aac",
            bytes_per_second=16_000,
            is_read=False,
        ),
        Format(
            "pcm",
            "audio/pcm;rate={rate};channels=1",
            encoder=f"{_HERE}.raw:Pcm",
            is_raw=True,
            is_read=False,
        ),
    )
}
SUFFIXES = {f".{name}": found for name, found in FORMATS.items()}
# of files that say what they are, as a corpus needs them
CORPUS = tuple(name for name, found in FORMATS.items() if not found.is_raw)
# of recordings that are read; .ogg may hold Opus
READ = (*(suffix for suffix, found in SUFFIXES.items() if found.is_read), ".ogg")
