"""Dia's networks: the decoder's running batch, and the codec of either side.

Source: nari-labs/dia model.py@876125e (0626) and @2811af1 (v0.1), Apache-2.0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

import numpy as np

from tts_core.audio.voice_cache import VoiceCache
from tts_core.codecs.dac import DacConfig, decode_lookahead
from tts_core.codecs.dac_calls import Passage, launch_passages, most_fed, split, stream_shapes
from tts_core.codecs.policy import CodecPolicy
from tts_core.config import Configs
from tts_core.dia.config import DiaConfig
from tts_core.dia.grid import DelayGrid
from tts_core.dia.request import DiaRequest
from tts_core.errors import GenerationError
from tts_core.nn.beside import Pending
from tts_core.nn.calls import apart
from tts_core.nn.host import Device
from tts_core.speaking.net import Net
from tts_core.speaking.running import RunningBatch
from tts_core.speaking.speech import Sound


class DiaNet(Net):
    """A Dia network and its codec, which decodes windows of several texts in shared calls. The empty text of
    guidance is encoded once.

    encode_nothing: of the network, encodes the empty text.
    make_slots: of the network, opens a running batch: `dia/decoder.py`.
    fault: of the network, `dia/guard.py`.
    decode: of the codec without windows, codes (B, Q, F) on the device → samples (B, L).
    lookahead: frames after a window that its samples depend on.
    """

    def __init__(
        self,
        network: Any,
        codec: Any,
        host: Device,
        *,
        encode_nothing: Callable[[], Any],
        make_slots: Callable[..., RunningBatch],
        fault: Callable[..., GenerationError],
        decode: Callable[[Any], Any],
    ):
        self.network, self.codec, self.host = network, codec, host
        self.config: DiaConfig = network.config
        self.codec_config: DacConfig = codec.config
        self.configs: Configs = {"dia": self.config, "dac": self.codec_config}
        self.lookahead = decode_lookahead(self.codec_config)
        self._encode_nothing, self._make_slots = cache(encode_nothing), make_slots
        self._fault, self._decode, self._codes = fault, decode, VoiceCache()

    @property
    def policy(self) -> CodecPolicy:
        """The codec's windows."""
        return self.codec.policy

    @property
    def sample_rate(self) -> int:
        return self.codec_config.sample_rate

    def slots(self, texts: int, *, rows: int, text_rows: int, guided: bool) -> RunningBatch:
        """Open a running batch for texts of at most `text_rows` bytes and `rows` grid rows.

        guided: some may be.
        """
        nothing = self._encode_nothing() if guided else None
        return self._make_slots(self.network, nothing, texts=texts, room=rows, text_rows=text_rows)

    def fault(self, piece: DiaRequest, grid: DelayGrid) -> GenerationError:
        """Build the error for logits of a request with one piece that are not all finite. grid: its rows so
        far.
        """
        tokens, rows = self.host.to_device(piece.tokens), self.host.to_device(grid.rows[None, : grid.filled])
        return self._fault(self.network, tokens, rows, guided=piece.sampling.cfg_scale != 0, text=1)

    def encode(self, samples: np.ndarray) -> np.ndarray:
        """Encode a recording, (L,) float32 at the codec's rate, as codes (Q, P) int32."""

        def encode() -> np.ndarray:
            return self.host.to_host(self.codec.encode(samples[None]))[0]

        return self._codes.encoded([samples], lambda _: apart(self.host, encode))

    def prepare(self, policy: CodecPolicy) -> None:
        """Let a stream's calls be captured, where the host `overlaps`: each shape at its second time.

        The largest comes first, in whose memory all others fit.
        """
        if self.host.overlaps:
            shapes = stream_shapes(self.codec_config, policy, most=self.most_fed)
            for rows, fed in sorted(shapes, key=lambda shape: -shape[0] * shape[1]):
                codes = np.zeros((rows, self.codec_config.n_codebooks, fed), np.int32)
                for _ in range(2):
                    self._launch([codes]).take()

    def split(self, windows: Sequence[Sound]) -> Iterable[Sequence[int]]:
        """Divide windows by their length; where nothing runs beside, `decode` does so itself."""
        if not self.host.overlaps:
            return [range(len(windows))]
        return split(self.codec_config, _passages(windows), most=self.most_fed)

    def launch(self, windows: Sequence[Sound], policy: CodecPolicy | None) -> Pending[list[np.ndarray]]:
        passages = _passages(windows)
        return launch_passages(self.codec_config, passages, self._launch, most=self.most_fed)

    @property
    def most_fed(self) -> int:
        """Count the frames to feed in one call of the codec."""
        return most_fed(self.codec_config, self.policy, backend=self.host.backend)

    def _launch(self, calls: Sequence[np.ndarray]) -> Pending[list[np.ndarray]]:
        """Begin to decode the codes of every call, (B, Q, F), to samples (B, L)."""
        return self.host.launch(lambda: [self._decode(self.host.to_device(codes)) for codes in calls])


def _passages(windows: Sequence[Sound]) -> list[Passage]:
    return [window.source for window in windows]
