"""Write a sound piece by piece: resample it if its format needs that, encode it, and pass the bytes on."""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib import import_module
from io import BytesIO
from types import TracebackType
from typing import Protocol

import numpy as np

from tts_core.audio.formats.names import Format
from tts_core.audio.formats.sink import BinaryOutput, Sink


class FormatEncoder(Protocol):
    """Encodes samples into a sink; `tts_core.audio.formats` has one class a library."""

    def write(self, samples: np.ndarray) -> None:
        """Encode the next (L,) float32 samples in [-1, 1]."""
        ...

    def close(self) -> None:
        """Write the rest, and the header again if the sink can seek."""
        ...


def open_encoder(form: Format, sink: Sink, sample_rate: int) -> FormatEncoder:
    """Begin to encode in a format. Raises NotFoundError if its library is not installed."""
    module, _, name = form._module.partition(":")
    encoder: Callable[[Sink, int], FormatEncoder] = getattr(import_module(module), name)
    return encoder(sink, sample_rate)


class SoundWriter:
    """Writes samples in a format to a binary file; as context manager, it also ends a broken-off sound well.

    output: stays open.
    seekable: the header is completed with the length; False: the output is a stream.
    sample_rate: of the samples, Hz.
    rate: of the encoded sound, if the format supports it; None: the same.
    Raises OSError if the output does, NotFoundError if the format's library is not installed.
    """

    def __init__(
        self, output: BinaryOutput, form: Format, sample_rate: int, *, rate: int | None = None, seekable: bool
    ):
        self.rate = form.rate(rate or sample_rate)
        self._sink = Sink(output, seekable=seekable)
        self._resampler = None
        if self.rate != sample_rate:
            import soxr

            self._resampler = soxr.ResampleStream(sample_rate, self.rate, 1, dtype="float32", quality="HQ")
        self._encoder = open_encoder(form, self._sink, self.rate)

    def write(self, samples: np.ndarray) -> None:
        """Encode the next (L,) samples, clipped to [-1, 1]."""
        self._put(samples.astype(np.float32, copy=False), last=False)

    def close(self) -> None:
        """Write the rest."""
        if self._resampler is not None:
            self._put(np.zeros(0, np.float32), last=True)
        self._encoder.close()
        self._check()

    def pass_on(self, output: BinaryOutput) -> None:
        """Write all further bytes to another output, a stream."""
        self._sink.stream(output)

    def _put(self, samples: np.ndarray, *, last: bool) -> None:
        if self._resampler is not None:
            samples = self._resampler.resample_chunk(samples, last=last)
        self._encoder.write(np.clip(samples, -1, 1))
        self._check()

    def _check(self) -> None:
        if self._sink.error is not None:
            raise self._sink.error

    def __enter__(self) -> SoundWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class StreamEncoder:
    """Turns samples into the bytes of one stream. Arguments as in SoundWriter.

    A format that is held back comes with the last bytes, its header complete, or from `held_seconds` on as a
    stream whose header has no length. whole: any format is held back to the end.
    """

    def __init__(self, form: Format, sample_rate: int, *, rate: int | None = None, whole: bool = False):
        held = math.inf if whole else form.held_seconds
        self._held = BytesIO() if held else None
        self._left = held * sample_rate  # samples until it is a stream
        self._ready = _Ready()
        output = self._ready if self._held is None else self._held
        self._writer = SoundWriter(output, form, sample_rate, rate=rate, seekable=self._held is not None)
        self.rate, self.media_type = self._writer.rate, form.media_type.format(rate=self._writer.rate)

    def add(self, samples: np.ndarray) -> bytes:
        """Add (L,) samples and return the bytes that are ready, maybe none."""
        self._writer.write(samples)
        self._left -= len(samples)
        if self._held is not None and self._left >= 0:
            return b""
        return self._released() + self._ready.take()

    def finish(self) -> bytes:
        """Return the rest."""
        self._writer.close()
        return self._released() + self._ready.take()

    def _released(self) -> bytes:
        """Return the bytes held back, and hold back no more."""
        if self._held is None:
            return b""
        data, self._held = self._held.getvalue(), None
        self._writer.pass_on(self._ready)
        return data


class _Ready:
    """Bytes in memory that wait to be taken."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: bytes, /) -> None:
        self._parts.append(data)

    def seek(self, offset: int, /) -> None:
        raise OSError("a stream does not seek")

    def take(self) -> bytes:
        data = b"".join(self._parts)
        self._parts.clear()
        return data
