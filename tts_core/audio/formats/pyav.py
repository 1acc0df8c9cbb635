"""AAC, and Opus in short pages, through PyAV (extra `formats`). Its wheels include libx264, which is GPL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import av
import numpy as np

from tts_core.audio.formats.sink import Sink


class _PyavEncoder:
    def __init__(
        self,
        sink: Sink,
        sample_rate: int,
        container: str,
        codec: str,
        options: Mapping[str, str],
        bit_rate: int,
    ):
        self._container = av.open(cast(Any, sink), "w", format=container, options=dict(options))
        stream = self._container.add_stream(codec, rate=sample_rate, layout="mono")
        assert isinstance(stream, av.AudioStream)
        stream.bit_rate = bit_rate
        self._stream = stream
        self._rate, self._samples = sample_rate, 0

    def write(self, samples: np.ndarray) -> None:
        """Encode (L,) samples."""
        if not len(samples):
            return
        frame = av.AudioFrame.from_ndarray(samples[None].astype(np.float32), "fltp", "mono")
        frame.sample_rate, frame.pts = self._rate, self._samples
        self._samples += len(samples)
        self._container.mux(self._stream.encode(frame))

    def close(self) -> None:
        """Encode the last frame."""
        self._container.mux(self._stream.encode(None))
        self._container.close()


class Opus(_PyavEncoder):
    """Opus in Ogg, a page every 20 ms. libopus takes 48 kHz."""

    def __init__(self, sink: Sink, sample_rate: int):
        super().__init__(sink, sample_rate, "ogg", "libopus", {"page_duration": "20000"}, 64_000)


class Aac(_PyavEncoder):
    """AAC in ADTS frames, which needs no header."""

    def __init__(self, sink: Sink, sample_rate: int):
        super().__init__(sink, sample_rate, "adts", "aac", {}, 4 * sample_rate)
