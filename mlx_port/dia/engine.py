"""Dia's engine: the decoder, row by row, and the codec.

Source: nari-labs/dia model.py@876125e (0626) and @2811af1 (v0.1), Apache-2.0.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx
import numpy as np

from mlx_port.codecs.dac import Dac
from mlx_port.dia.dia import Dia
from mlx_port.dia.guard import fault
from mlx_port.dia.slots import Slots
from mlx_port.host import Host
from mlx_port.steps.dia.fused import fused, join
from tts_core.codecs.dac_calls import Passage, decode_passages, most_fed
from tts_core.codecs.policy import CodecPolicy
from tts_core.dia.grid import DelayGrid
from tts_core.dia.request import Run
from tts_core.errors import GenerationError
from tts_core.nn.beside import Done


class DiaEngine:
    """A Dia network and its codec. The empty text of guidance is encoded once."""

    def __init__(self, network: Dia, codec: Dac):
        join(network)
        self.network, self.codec = network, codec
        self.config, self.codec_config = network.config, codec.config
        self.host = Host(network.model.decoder.embeddings.embed)
        self._nothing: mx.array | None = None

    def slots(self, texts: int, *, rows: int, text_rows: int, guided: bool) -> Slots:
        """Open a running batch for texts of at most `text_rows` bytes and `rows` grid rows."""
        decoder = fused(self.network, self._empty_text() if guided else None)
        return Slots(decoder, texts=texts, rows=rows, text_rows=text_rows)

    @property
    def policy(self) -> CodecPolicy:
        """The codec's windows."""
        return self.codec.policy

    def encode(self, samples: np.ndarray) -> np.ndarray:
        """Encode samples. (L,) float32 → codes (Q, P) int32."""
        return self.host.to_host(self.codec.encode(samples[None]))[0]

    def decode_windows(self, passages: Sequence[Passage]) -> list[np.ndarray]:
        """Decode passages, also of several texts, to samples (L,) float32 each."""
        most = most_fed(self.codec_config, self.policy, backend=self.host.backend)
        return decode_passages(self.codec_config, passages, self._decode, most=most)

    def launch_windows(self, passages: Sequence[Passage]) -> Done[list[np.ndarray]]:
        """Do the same."""
        return Done(self.decode_windows(passages))

    def _decode(self, calls: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Decode the codes of every call, (B, Q, F), to samples (B, L); start all, then read."""
        audio = []
        for codes in calls:
            audio.append(self.codec.decode_whole(self.host.to_device(codes)))
            mx.async_eval(audio[-1])
        return [self.host.to_host(one) for one in audio]

    def _empty_text(self) -> mx.array:
        if self._nothing is None:
            self._nothing = self.network.encode_nothing()
        return self._nothing

    def fault(self, run: Run, grid: DelayGrid) -> GenerationError:
        """Build the error for a text's logits that are not all finite. grid: its rows so far."""
        tokens, rows = self.host.to_device(run.tokens), self.host.to_device(grid.rows[None, : grid.filled])
        return fault(self.network, tokens, rows, guided=run.sampling.cfg_scale != 0, text=1)
