"""Dia's engine: the decoder, row by row, and the codec.

Source: nari-labs/dia model.py@876125e (0626) and @2811af1 (v0.1), Apache-2.0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import mlx.core as mx
import numpy as np

from mlx_port.codecs.dac import Dac
from mlx_port.dia.dia import Dia
from mlx_port.dia.fused import fused, join
from mlx_port.dia.guard import fault
from mlx_port.dia.slots import Slots, decode
from mlx_port.host import Host
from tts_core.codecs.dac_calls import Passage, decode_passages, most_fed
from tts_core.codecs.policy import CodecPolicy
from tts_core.dia.grid import DelayGrid
from tts_core.dia.request import Batch
from tts_core.errors import GenerationError


class DiaEngine:
    """A Dia network and its codec. The empty text of guidance is encoded once."""

    def __init__(self, network: Dia, codec: Dac):
        join(network)
        self.network, self.codec = network, codec
        self.config, self.codec_config = network.config, codec.config
        self.host = Host(network.model.decoder.embeddings.embed)
        self._nothing: mx.array | None = None

    def rows(self, batch: Batch) -> Iterator[DelayGrid]:
        """Fill the grid of a batch row by row; yield it after each row."""
        grid = DelayGrid(
            self.config, batch.prompts, batch.max_frames, last_channel_free=batch.last_channel_free
        )
        guided = batch.sampling.cfg_scale != 0
        draws = self._draws(batch, grid, guided=guided)
        while not grid.done:
            ids = next(draws)
            if ids.min() < 0:
                raise self.fault(ids, batch, grid, guided=guided)
            grid.accept(ids)
            yield grid

    def slots(self, texts: int, *, rows: int, text_rows: int) -> Slots:
        """Open a running batch for texts of at most `text_rows` bytes and `rows` grid rows, with guidance."""
        decoder = fused(self.network, self._empty_text())
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

    def _draws(self, batch: Batch, grid: DelayGrid, *, guided: bool) -> Iterator[np.ndarray]:
        """Yield ids for every next row of a grid, (B, C). One read from the device per row, a row late."""
        decoder = fused(self.network, self._empty_text() if guided else None)
        texts, longest = len(batch.tokens), max(map(len, batch.tokens))
        return decode(Slots(decoder, texts=texts, rows=grid.rows.shape[1], text_rows=longest), batch, grid)

    def fault(self, ids: np.ndarray, batch: Batch, grid: DelayGrid, *, guided: bool) -> GenerationError:
        """Build the error for logits that are not all finite. ids: (B, C), the draws; -1 in such texts."""
        item = int((ids < 0).any(axis=1).argmax())
        tokens = self.host.to_device(batch.tokens[item])
        rows = self.host.to_device(grid.rows[item : item + 1, : grid.filled])
        return fault(self.network, tokens, rows, guided=guided, text=item + 1)
