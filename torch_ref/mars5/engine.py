"""MARS5's engine: autoregressive ids, diffusion, codec and vocoder.

Upstream: Camb-ai/MARS5-TTS@84697c8 (AGPL-3.0); written from a description, none of its code was used.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from torch_ref.codecs.encodec import Encodec
from torch_ref.codecs.vocos import Vocos
from torch_ref.codecs.vocos_calls import decode_pieces
from torch_ref.cuda.mars5.reverse import make_step
from torch_ref.cuda.mars5.slots import make_slots
from torch_ref.cuda.mars5.together import make_together
from torch_ref.host import Host
from torch_ref.mars5.codec_lm import CodecLM
from torch_ref.mars5.residual_transformer import ResidualTransformer
from torch_ref.mars5.reverse import ReverseDiffusion, Run
from torch_ref.mars5.slots import Slots
from torch_ref.mars5.together import Call
from tts_core.audio.voice_cache import VoiceCache
from tts_core.mars5.diffusion import Cells, Diffusion
from tts_core.mars5.tokens import CodecVocabulary
from tts_core.nn.calls import apart
from tts_core.nn.noise import Noise


class Mars5Engine:
    """MARS5's networks. network: autoregressive; transformer: of the diffusion."""

    def __init__(
        self,
        network: CodecLM,
        transformer: ResidualTransformer,
        codec: Encodec,
        vocoder: Vocos,
        vocabulary: CodecVocabulary,
    ):
        self.network, self.transformer = network, transformer
        self.codec, self.vocoder, self.vocabulary = codec, vocoder, vocabulary
        self.config, self.nar_config = network.config, transformer.config
        self.codec_config, self.vocoder_config = codec.config, vocoder.config
        self.diffusion = ReverseDiffusion(transformer, make_step)
        self.host = Host(network.embed)
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
        return make_slots(self.network, texts=texts, room=room, lowest=lowest, end=end)

    def begin(
        self, text: np.ndarray, reference: np.ndarray, cells: Cells, settings: Diffusion, noise: Noise
    ) -> Run:
        """Begin to draw all codebooks of the cells' frames. text: (N,) ids.  reference: (Q, P) codes."""
        return self.diffusion.begin(text, reference, cells, settings, noise=noise)

    def together(self, runs: Sequence[Run]) -> Call:
        """Build a call that runs the next timestep of each run."""
        return Call(self.transformer, runs, make_together)

    def decode(self, codes: Sequence[np.ndarray], bandwidth_id: int) -> list[np.ndarray]:
        """Decode codes. (Q, T) int32 each → samples (L,) float32 each."""
        return decode_pieces(self.vocoder, codes, self.vocoder.policy.even_cuts, bandwidth_id)
