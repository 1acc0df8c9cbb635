"""MP3, FLAC and Opus through soundfile, whose wheels include LAME, libFLAC and libopus."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import soundfile

from tts_core.audio.formats.raw import pcm16
from tts_core.audio.formats.sink import Sink


class _SndfileEncoder:
    def __init__(self, sink: Sink, sample_rate: int, *, container: str, **settings: Any):
        self._file = soundfile.SoundFile(cast(Any, sink), "w", sample_rate, 1, format=container, **settings)

    def write(self, samples: np.ndarray) -> None:
        """Encode (L,) samples."""
        self._file.write(samples)

    def close(self) -> None:
        """Encode the last frame, block or page."""
        self._file.close()


class Mp3(_SndfileEncoder):
    """MP3 with a constant bit rate, so that a player knows the length of a stream: 160 kbit/s at 44.1 kHz, 80
    at 16 and 24 kHz.
    """

    def __init__(self, sink: Sink, sample_rate: int):
        super().__init__(sink, sample_rate, container="MP3", bitrate_mode="CONSTANT", compression_level=0.5)


class Flac(_SndfileEncoder):
    """16-bit FLAC."""

    def __init__(self, sink: Sink, sample_rate: int):
        super().__init__(sink, sample_rate, container="FLAC", subtype="PCM_16")

    def write(self, samples: np.ndarray) -> None:
        """Encode (L,) samples, rounded as in a WAV file."""
        super().write(pcm16(samples))


class Opus(_SndfileEncoder):
    """Opus in Ogg. libsndfile writes pages of one second; with PyAV there is `pyav.Opus`."""

    def __init__(self, sink: Sink, sample_rate: int):
        super().__init__(sink, sample_rate, container="OGG", subtype="OPUS")
