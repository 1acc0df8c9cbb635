"""Dia's engine: the decoder's running batch and the codec of either side.

Source: nari-labs/dia model.py@876125e (0626) and @2811af1 (v0.1), Apache-2.0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from tts_core.codecs.dac import DacConfig
from tts_core.codecs.dac_calls import Passage, launch_passages, most_fed, stream_shapes
from tts_core.codecs.policy import CodecPolicy
from tts_core.config import Configs
from tts_core.dia.config import DiaConfig
from tts_core.dia.grid import DelayGrid
from tts_core.dia.request import DiaRequest
from tts_core.errors import GenerationError
from tts_core.nn.beside import Pending
from tts_core.nn.host import Device
from tts_core.serving.turns import Slots


class DiaEngine:
    """A Dia network and its codec. The empty text of guidance is encoded once.

    encode_nothing: of the network, encodes the empty text.
    make_slots: of the network, `dia/slots.py`; `DiaSlots.join` takes a `DiaJoining`, and ids are read as
    (steps, texts, C) int32.
    fault: of the network, `dia/guard.py`.
    decode: of the codec without windows, codes (B, Q, F) on the device → samples (B, L).
    """

    def __init__(
        self,
        network: Any,
        codec: Any,
        host: Device,
        *,
        encode_nothing: Callable[[], Any],
        make_slots: Callable[..., Slots],
        fault: Callable[..., GenerationError],
        decode: Callable[[Any], Any],
    ):
        self.network, self.codec, self.host = network, codec, host
        self.config: DiaConfig = network.config
        self.codec_config: DacConfig = codec.config
        self.configs: Configs = {"dia": self.config, "dac": self.codec_config}
        self._encode_nothing, self._make_slots = cache(encode_nothing), make_slots
        self._fault, self._decode = fault, decode

    @property
    def policy(self) -> CodecPolicy:
        """The codec's windows."""
        return self.codec.policy

    def slots(self, texts: int, *, rows: int, text_rows: int, guided: bool) -> Slots:
        """Open a running batch for texts of at most `text_rows` bytes and `rows` grid rows.

        guided: some may be.
        """
        nothing = self._encode_nothing() if guided else None
        return self._make_slots(self.network, nothing, texts=texts, rows=rows, text_rows=text_rows)

    def fault(self, piece: DiaRequest, grid: DelayGrid) -> GenerationError:
        """Build the error for logits of a request with one piece that are not all finite. grid: its rows so
        far.
        """
        tokens, rows = self.host.to_device(piece.tokens), self.host.to_device(grid.rows[None, : grid.filled])
        return self._fault(self.network, tokens, rows, guided=piece.sampling.cfg_scale != 0, text=1)

    def encode(self, samples: np.ndarray) -> np.ndarray:
        """Encode samples. (L,) float32 → codes (Q, P) int32."""
        return self.host.to_host(self.codec.encode(samples[None]))[0]

    def decode_windows(self, passages: Sequence[Passage]) -> list[np.ndarray]:
        """Decode passages, also of several texts, to samples (L,) float32 each."""
        return self.launch_windows(passages).take()

    def launch_windows(self, passages: Sequence[Passage]) -> Pending[list[np.ndarray]]:
        """Begin the same, beside the decoder's steps where the host `overlaps`."""
        return launch_passages(self.codec_config, passages, self._launch, most=self.most_fed)

    def prepare_windows(self, policy: CodecPolicy) -> None:
        """Let a stream's calls be captured, where the host `overlaps`: each shape at its second time.

        The largest comes first, in whose memory all others fit.
        """
        if self.host.overlaps:
            shapes = stream_shapes(self.codec_config, policy, most=self.most_fed)
            for rows, fed in sorted(shapes, key=lambda shape: -shape[0] * shape[1]):
                codes = np.zeros((rows, self.codec_config.n_codebooks, fed), np.int32)
                for _ in range(2):
                    self._launch([codes]).take()

    @property
    def most_fed(self) -> int:
        """Count the frames to feed in one call of the codec."""
        return most_fed(self.codec_config, self.policy, backend=self.host.backend)

    def _launch(self, calls: Sequence[np.ndarray]) -> Pending[list[np.ndarray]]:
        """Begin to decode the codes of every call, (B, Q, F), to samples (B, L)."""
        return self.host.launch(lambda: [self._decode(self.host.to_device(codes)) for codes in calls])
