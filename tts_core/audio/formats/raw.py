"""16-bit PCM, without and with the header of a WAV file (RIFF, Microsoft 1991)."""

from __future__ import annotations

import struct

import numpy as np

from tts_core.audio.formats.sink import Sink

UNKNOWN = 0xFFFFFFFF  # the size in a stream's header, as ffmpeg writes it; readers go on to the end


def pcm16(samples: np.ndarray) -> np.ndarray:
    """Convert samples, clipped to [-1, 1], to little-endian 16-bit integers; 1.0 is 32767."""
    return np.rint(np.clip(samples, -1, 1) * 32767).astype("<i2")


class Pcm:
    """Samples only, little-endian."""

    def __init__(self, sink: Sink, sample_rate: int):
        self._sink = sink

    def write(self, samples: np.ndarray) -> None:
        """Append (L,) samples."""
        self._sink.write(pcm16(samples).tobytes())

    def close(self) -> None:
        """Nothing is left to write."""


class Wav(Pcm):
    """A WAV file. If the sink can seek, it is valid after every write, even if interrupted."""

    def __init__(self, sink: Sink, sample_rate: int):
        super().__init__(sink, sample_rate)
        self._rate, self._bytes = sample_rate, 0
        self._put_header(0 if sink.seekable() else UNKNOWN)

    def write(self, samples: np.ndarray) -> None:
        """Append (L,) samples, and update the header if possible."""
        super().write(samples)
        self._bytes += 2 * len(samples)
        if self._sink.seekable():
            self._sink.seek(0)
            self._put_header(self._bytes)
            self._sink.seek(0, 2)

    def _put_header(self, size: int) -> None:
        """Write the header of one channel of `size` bytes; a size that does not fit is unknown."""
        chunk = struct.pack("<HHIIHH", 1, 1, self._rate, 2 * self._rate, 2, 16)
        riff, data = min(size + 36, UNKNOWN), min(size, UNKNOWN)
        self._sink.write(struct.pack("<4sI4s4sI", b"RIFF", riff, b"WAVE", b"fmt ", len(chunk)) + chunk)
        self._sink.write(struct.pack("<4sI", b"data", data))
