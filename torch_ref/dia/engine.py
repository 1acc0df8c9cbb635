"""Dia's engine: the decoder, row by row, and the codec.

Source: nari-labs/dia model.py@876125e (0626) and @2811af1 (v0.1), Apache-2.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from torch_ref.codecs.dac import Dac
from torch_ref.cuda.dia.slots import make_slots
from torch_ref.cuda.replayed import Replayed
from torch_ref.dia.dia import Dia
from torch_ref.dia.guard import fault
from torch_ref.host import Host
from tts_core.codecs.dac_calls import Passage, launch_passages, most_fed
from tts_core.codecs.policy import CodecPolicy
from tts_core.dia.grid import DelayGrid
from tts_core.dia.request import Run
from tts_core.errors import GenerationError
from tts_core.nn.beside import Pending
from tts_core.serving import turns


class DiaEngine:
    """A Dia network and its codec. The empty text of guidance is encoded once."""

    def __init__(self, network: Dia, codec: Dac):
        self.network, self.codec = network, codec
        self.config, self.codec_config = network.config, codec.config
        self.host = Host(network.model.decoder.embeddings.embed)
        self._nothing: Tensor | None = None

    @torch.inference_mode()
    def slots(self, texts: int, *, rows: int, text_rows: int, guided: bool) -> turns.Slots:
        """Open a running batch for texts of at most `text_rows` bytes and `rows` grid rows."""
        nothing = self._empty_text() if guided else None
        return make_slots(self.network, nothing, texts=texts, rows=rows, text_rows=text_rows)

    @property
    def policy(self) -> CodecPolicy:
        """The codec's windows."""
        return self.codec.policy

    def encode(self, samples: np.ndarray) -> np.ndarray:
        """Encode samples. (L,) float32 → codes (Q, P) int32."""
        return self.host.to_host(self.codec.encode(samples[None]))[0]

    def decode_windows(self, passages: Sequence[Passage]) -> list[np.ndarray]:
        """Decode passages, also of several texts, to samples (L,) float32 each."""
        return self.launch_windows(passages).take()

    def launch_windows(self, passages: Sequence[Passage]) -> Pending[list[np.ndarray]]:
        """Begin the same, beside the decoder's steps where the host `overlaps`."""
        most = most_fed(self.codec_config, self.policy, backend=self.host.backend)
        return launch_passages(self.codec_config, passages, self._launch, most=most)

    def _launch(self, calls: Sequence[np.ndarray]) -> Pending[list[np.ndarray]]:
        """Begin to decode the codes of every call, (B, Q, F), to samples (B, L)."""
        decode, to_device = self._replayed, self.host.to_device
        return self.host.launch(lambda: [decode(to_device(codes)) for codes in calls])

    @cached_property
    def _replayed(self) -> Replayed:
        return Replayed(self.codec.decode_whole, lambda: self.codec.precision)

    def _empty_text(self) -> Tensor:
        if self._nothing is None:
            self._nothing = self.network.encode_nothing()
        return self._nothing

    def fault(self, run: Run, grid: DelayGrid) -> GenerationError:
        """Build the error for a text's logits that are not all finite. grid: its rows so far."""
        tokens, rows = self.host.to_device(run.tokens), self.host.to_device(grid.rows[None, : grid.filled])
        return fault(self.network, tokens, rows, guided=run.sampling.cfg_scale != 0, text=1)
