"""The interface between Dia's pipeline and its networks on one side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from tts_core.codecs.dac import DacConfig
from tts_core.codecs.dac_calls import Passage
from tts_core.codecs.policy import CodecPolicy
from tts_core.dia.config import DiaConfig
from tts_core.dia.grid import DelayGrid
from tts_core.dia.request import Run
from tts_core.errors import GenerationError
from tts_core.nn.beside import Pending
from tts_core.nn.host import Host
from tts_core.serving.turns import Slots


class Engine(Protocol):
    """Dia's networks on one side, `dia/engine.py`: a decoder, and the codec's two directions."""

    @property
    def config(self) -> DiaConfig:
        """The network's configuration."""
        ...

    @property
    def codec_config(self) -> DacConfig:
        """The codec's configuration."""
        ...

    @property
    def policy(self) -> CodecPolicy:
        """The codec's windows."""
        ...

    @property
    def host(self) -> Host:
        """The device that the networks run on."""
        ...

    def encode(self, samples: np.ndarray) -> np.ndarray:
        """Encode samples. (L,) float32 → codes (Q, P) int32."""
        ...

    def decode_windows(self, passages: Sequence[Passage]) -> list[np.ndarray]:
        """Decode passages, also of several texts, to samples (L,) float32 each."""
        ...

    def launch_windows(self, passages: Sequence[Passage]) -> Pending[list[np.ndarray]]:
        """Begin the same, beside the decoder's steps where the host `overlaps`."""
        ...

    def slots(self, texts: int, *, rows: int, text_rows: int, guided: bool) -> Slots:
        """Open a running batch for texts of at most `text_rows` bytes and `rows` grid rows.

        guided: some may be.
        `turns.Slots.join` takes a tts_core.dia.joining.Joining; ids are read as (steps, texts, C) int32.
        """
        ...

    def fault(self, run: Run, grid: DelayGrid) -> GenerationError:
        """Build the error for a text's logits that are not all finite. grid: its rows so far."""
        ...
