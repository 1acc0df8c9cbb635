"""How much sound the bytes of a streamed answer contain."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping

import numpy as np

RATE = 24000  # Hz, of OpenAI's pcm
TYPES = ("audio/pcm", "audio/x-pcm", "audio/l16", "audio/raw", "application/octet-stream")
WAV_TYPES = ("audio/wav", "audio/x-wav", "audio/wave", "audio/vnd.wave", "application/octet-stream")
AUDIBLE = 32768 * 10 ** (-60 / 20)  # a sample of 16 bits over -60 dB
_UNKNOWN = (0, 0x7FFFFFFF)  # sizes of data that a stream writes: none, and this or more
_LONGEST_HEAD = 65536  # bytes before a WAV's data


class PcmMeter:
    """Samples of 16 bits without a header.

    audible: seconds of sound before the first sample over -60 dB; None before it comes.
    """

    def __init__(self, rate: int, channels: int):
        self.frame, self.rate, self.rest = 2 * channels, rate, b""  # bytes, Hz, a part of a frame
        self.frames, self.audible = 0, None

    def add(self, data: bytes) -> float:
        """Take bytes; return the seconds of sound that they complete."""
        data = self.rest + data
        frames = len(data) // self.frame
        data, self.rest = data[: frames * self.frame], data[frames * self.frame :]
        if self.audible is None:
            loud = np.flatnonzero(np.abs(np.frombuffer(data, "<i2").astype(np.int32)) > AUDIBLE)
            if len(loud):
                self.audible = (self.frames + 2 * int(loud[0]) // self.frame) / self.rate
        self.frames += frames
        return frames / self.rate


class WavMeter:
    """A WAV file of 16 bits whose header comes first. Raises ValueError for other bytes."""

    def __init__(self) -> None:
        self.head, self.size = b"", 0  # size: bytes of data that are still to come
        self.pcm: PcmMeter | None = None

    @property
    def audible(self) -> float | None:
        """Seconds of sound before the first sample over -60 dB; None before it comes."""
        return None if self.pcm is None else self.pcm.audible

    def add(self, data: bytes) -> float:
        """Take bytes; return the seconds of sound that they complete, the header not counted."""
        if self.pcm is None:
            self.head += data
            data = self._begin()
        if self.pcm is None:
            return 0.0
        data = data[: self.size]
        self.size -= len(data)
        return self.pcm.add(data)

    def _begin(self) -> bytes:
        """Read the header if it is complete; return the data after it."""
        if not b"RIFF".startswith(self.head[:4]) or not b"WAVE".startswith(self.head[8:12]):
            raise ValueError("not a WAV file")
        offset, form = 12, None
        while len(self.head) >= offset + 8:
            name, size = struct.unpack_from("<4sI", self.head, offset)
            offset += 8
            if name == b"data":
                if form is None or not (form[1] and form[2] and form[4]):
                    raise ValueError("a WAV file without its format")
                _, channels, rate, _, _, bits = form
                if bits != 16:
                    raise ValueError(f"a WAV file of {bits} bits, not 16")
                self.pcm = PcmMeter(rate, channels)
                self.size = 2**63 if size == _UNKNOWN[0] or size >= _UNKNOWN[1] else size
                return self.head[offset:]
            if name == b"fmt " and len(self.head) >= offset + 16:
                form = struct.unpack_from("<HHIIHH", self.head, offset)
            offset += size + size % 2
        if len(self.head) > _LONGEST_HEAD:
            raise ValueError("a WAV file without data")
        return b""


def meter(form: str, headers: Mapping[str, str], rate: int | None) -> PcmMeter | WavMeter:
    """Choose how an answer's sound is counted.

    form: "pcm" or "wav".  rate: of pcm in Hz; None takes the answer's, from its content type or the header
    x-sample-rate, else OpenAI's.  Raises ValueError for another content type.
    """
    kind, _, more = headers.get("content-type", "application/octet-stream").lower().partition(";")
    if kind.strip() not in (WAV_TYPES if form == "wav" else TYPES):
        raise ValueError(f"content type {kind.strip()}")
    if form == "wav":
        return WavMeter()
    given = dict(re.findall(r"(rate|channels)\s*=\s*\"?(\d+)", more))
    stated = rate or int(given.get("rate") or headers.get("x-sample-rate") or RATE)
    return PcmMeter(stated or RATE, int(given.get("channels") or 1) or 1)
