"""MARS5's engine: autoregressive ids, diffusion, codec and vocoder of either side.

Upstream: Camb-ai/MARS5-TTS@84697c8 (AGPL-3.0); written from a description, none of its code was used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np

from tts_core.audio.voice_cache import VoiceCache
from tts_core.codecs.vocos_calls import launch_pieces
from tts_core.config import Configs
from tts_core.mars5.diffusion import Cells, Diffusion
from tts_core.mars5.tokens import CodecVocabulary
from tts_core.nn.beside import Pending
from tts_core.nn.calls import apart
from tts_core.nn.host import Device
from tts_core.nn.noise import Noise
from tts_core.serving.turns import Slots


class DiffusionRun(Protocol):
    """A diffusion under way, `mars5/reverse.py`."""

    @property
    def done(self) -> bool:
        """True after the last timestep."""
        ...

    def result(self) -> np.ndarray:
        """Read all codebooks of the cells' frames, (Q, S) int32.

        Raises GenerationError if the network computed NaN or infinity.
        """
        ...


class Mars5Engine:
    """MARS5's networks.

    network: autoregressive.
    diffusion: of the transformer, `mars5/reverse.py`.
    call: builds a call that runs the next timestep of several runs, `mars5/together.py`.
    make_slots: of the network, `mars5/slots.py`.
    """

    def __init__(
        self,
        network: Any,
        diffusion: Any,
        codec: Any,
        vocoder: Any,
        vocabulary: CodecVocabulary,
        host: Device,
        *,
        make_slots: Callable[..., Slots],
        call: Callable[[Sequence[Any]], Callable[[], None]],
    ):
        self.network, self.diffusion, self.transformer = network, diffusion, diffusion.network
        self.codec, self.vocoder, self.vocabulary, self.host = codec, vocoder, vocabulary, host
        self.config, self.nar_config = network.config, diffusion.network.config
        self.codec_config, self.vocoder_config = codec.config, vocoder.config
        self.configs: Configs = {
            "mars5": self.config,
            "mars5_nar": self.nar_config,
            "encodec": self.codec_config,
            "vocos": self.vocoder_config,
        }
        self.make_slots, self._call = make_slots, call
        self.voices = VoiceCache()

    def encode(self, samples: np.ndarray) -> np.ndarray:
        """Encode samples. (L,) float32 → codes (Q, P) int32. The latest voices are kept."""

        def encoded(recordings: Sequence[np.ndarray]) -> np.ndarray:
            codes = self.codec.encode(recordings[0][None], self.nar_config.n_codebooks)
            return self.host.to_host(codes)[0]

        return self.voices.encoded([samples], lambda ones: apart(self.host, partial(encoded, ones))).copy()

    def slots(self, texts: int, room: int) -> Slots:
        """Allocate a running batch of the autoregressive network for as many texts of `room` ids each."""
        lowest, end = self.vocabulary.lowest, self.vocabulary.end
        return self.make_slots(self.network, texts=texts, room=room, lowest=lowest, end=end)

    def begin(
        self, text: np.ndarray, reference: np.ndarray, cells: Cells, settings: Diffusion, noise: Noise
    ) -> DiffusionRun:
        """Begin to draw all codebooks of the cells' frames. text: (N,) ids.  reference: (Q, P) codes."""
        return self.diffusion.begin(text, reference, cells, settings, noise=noise)

    def together(self, runs: Sequence[Any]) -> Callable[[], None]:
        """Build a call that runs the next timestep of several runs."""
        return self._call(runs)

    def launch(self, codes: Sequence[np.ndarray], bandwidth_id: int) -> Pending[list[np.ndarray]]:
        """Begin to decode codes, (Q, T) int32 each → samples (L,) float32 each, where the host `overlaps`
        beside other work.
        """
        return launch_pieces(self.vocoder, self.host, codes, self.vocoder.policy.even_cuts, bandwidth_id)
