"""Dia's engine: the decoder, row by row, and the codec.

Source: nari-labs/dia model.py@876125e (0626) and @2811af1 (v0.1), Apache-2.0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from torch_ref.codecs.dac import Dac
from torch_ref.dia.dia import Dia
from torch_ref.dia.few_rows import few_rows
from torch_ref.dia.few_slots import FewSlots
from torch_ref.dia.few_slots import decode as decode_few
from torch_ref.dia.fused import FusedDecoder, runs
from torch_ref.dia.guard import fault
from torch_ref.dia.plain_slots import PlainSlots
from torch_ref.dia.slots import Slots, decode
from torch_ref.dia.step import make_step
from torch_ref.host import Host
from tts_core.codecs.dac_calls import Passage, decode_passages, most_fed
from tts_core.codecs.policy import CodecPolicy
from tts_core.dia.grid import DelayGrid
from tts_core.dia.request import Batch
from tts_core.errors import GenerationError


class DiaEngine:
    """A Dia network and its codec. The empty text of guidance is encoded once."""

    def __init__(self, network: Dia, codec: Dac):
        self.network, self.codec = network, codec
        self.config, self.codec_config = network.config, codec.config
        self.host = Host(network.model.decoder.embeddings.embed)
        self._nothing: Tensor | None = None

    @torch.inference_mode()
    def rows(self, batch: Batch) -> Iterator[DelayGrid]:
        """Fill the grid of a batch row by row; yield it after each row."""
        grid = DelayGrid(
            self.config, batch.prompts, batch.max_frames, last_channel_free=batch.last_channel_free
        )
        guided = batch.sampling.cfg_scale != 0
        if runs(self.network):
            draws = self._fused_draws(batch, grid, guided=guided)
        elif few_rows(self.network) is not None:
            nothing = self._empty_text() if guided else None
            draws = decode_few(FewSlots(self.network, nothing, texts=len(batch.tokens)), batch, grid)
        else:
            draws = self._draws(batch, grid, guided=guided)
        while not grid.done:
            ids = next(draws)
            if ids.min() < 0:
                raise self.fault(ids, batch, grid, guided=guided)
            grid.accept(ids)
            yield grid

    @torch.inference_mode()
    def slots(self, texts: int, *, rows: int, text_rows: int) -> slots.Slots:
        """Open a running batch for texts of at most `text_rows` bytes and `rows` grid rows, with guidance."""
        if not runs(self.network):
            plain = PlainSlots if few_rows(self.network) is None else FewSlots
            return plain(self.network, self._empty_text(), texts=texts)
        decoder = FusedDecoder(self.network, self._empty_text())
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
        audio = [self.codec.decode_whole(self.host.to_device(codes)) for codes in calls]
        return [self.host.to_host(one) for one in audio]

    def _empty_text(self) -> Tensor:
        if self._nothing is None:
            self._nothing = self.network.encode_nothing()
        return self._nothing

    def _draws(self, batch: Batch, grid: DelayGrid, *, guided: bool) -> Iterator[np.ndarray]:
        """Yield ids for every next row of a grid, (B, C). One read from the device per row."""
        tokens = [self.host.to_device(ids) for ids in batch.tokens]
        source = self.network.read(tokens, self._empty_text() if guided else None)
        step = make_step(self.network, source, batch.sampling, guided=guided, rows=grid.rows.shape[1])
        shape = grid.channels, self.config.decoder_config.vocab_size
        first = 0
        while True:
            numbers = batch.uniform(grid.steps(), shape)
            uniform = None if numbers is None else self.host.to_device(numbers)
            rows = self.host.to_device(grid.rows[:, first : grid.filled])
            first = grid.filled
            yield self.host.to_host(step(rows, uniform))

    def _fused_draws(self, batch: Batch, grid: DelayGrid, *, guided: bool) -> Iterator[np.ndarray]:
        """Yield the same ids from kernels, which compute some rows ahead."""
        decoder = FusedDecoder(self.network, self._empty_text() if guided else None)
        texts, longest = len(batch.tokens), max(map(len, batch.tokens))
        return decode(Slots(decoder, texts=texts, rows=grid.rows.shape[1], text_rows=longest), batch, grid)

    def fault(self, ids: np.ndarray, batch: Batch, grid: DelayGrid, *, guided: bool) -> GenerationError:
        """Build the error for logits that are not all finite. ids: (B, C), the draws; -1 in such texts."""
        item = int((ids < 0).any(axis=1).argmax())
        tokens = self.host.to_device(batch.tokens[item])
        rows = self.host.to_device(grid.rows[item : item + 1, : grid.filled])
        return fault(self.network, tokens, rows, guided=guided, text=item + 1)
