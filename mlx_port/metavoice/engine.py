"""MetaVoice's engine: speaker vectors, the two stages, and the decoders.

Source: metavoiceio/metavoice-src, July 2024 (Apache-2.0).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from mlx_port.codecs.encodec import Encodec
from mlx_port.codecs.mbd import MultiBandDiffusion
from mlx_port.codecs.vocos import Vocos
from mlx_port.guard import watched
from mlx_port.host import Host
from mlx_port.metavoice.codes import fill_codebooks
from mlx_port.metavoice.decoding import DiffusionDecoder, VocosDecoder
from mlx_port.metavoice.first_stage import FirstStage
from mlx_port.metavoice.guidance import speaker_rows, stacked
from mlx_port.metavoice.second_stage import SecondStage
from mlx_port.metavoice.slots import Slots
from mlx_port.metavoice.speaker_encoder import SpeakerEncoder
from tts_core.audio.voice_cache import VoiceCache
from tts_core.errors import GenerationError
from tts_core.metavoice.options import Decoder
from tts_core.metavoice.request import Piece
from tts_core.metavoice.sampling import FirstStageSampling
from tts_core.metavoice.text import Tokenizers
from tts_core.nn.calls import apart
from tts_core.nn.guard import not_finite
from tts_core.nn.noise import NormalNoise


class MetaVoiceEngine:
    """MetaVoice's networks with their tokenizers, and a cache of voices. configs: of all parts, by kind.

    network: the first stage.  diffusion: with its codec; None if the model has none.
    """

    def __init__(
        self,
        configs: Mapping[str, object],
        tokenizers: Tokenizers,
        network: FirstStage,
        second_stage: SecondStage,
        speaker_encoder: SpeakerEncoder,
        vocoder: Vocos,
        diffusion: tuple[Encodec, MultiBandDiffusion] | None = None,
    ):
        self.configs, self.tokenizers = configs, tokenizers
        self.network, self.second_stage, self.speaker_encoder = network, second_stage, speaker_encoder
        self.host = Host(network.transformer.wpe)
        self.voices = VoiceCache()
        self.decoders: dict[Decoder, VocosDecoder | DiffusionDecoder] = {"vocos": VocosDecoder(vocoder)}
        if diffusion is not None:
            self.decoders["mbd"] = DiffusionDecoder(*diffusion, self.host)

    def speaker(self, utterances: Sequence[np.ndarray]) -> np.ndarray:
        """Encode recordings, (L,) float32 samples at 16 kHz each, as the voice's vector, (E,) float32."""
        embed = self.speaker_encoder.embed
        return self.voices.encoded(utterances, lambda ones: apart(self.host, partial(embed, ones))).copy()

    def slots(self, texts: int, rows: int, room: int) -> Slots:
        """Open a running batch of the first stage for as many texts, on as many rows of `room` ids."""
        end_of_text = self.tokenizers.first_stage.end_of_text
        return Slots(self.network, texts=texts, rows=rows, room=room, end_of_text=end_of_text)

    def fault(self, ids: np.ndarray, vector: np.ndarray, sampling: FirstStageSampling) -> GenerationError:
        """Build the error that names the first layer with NaN or infinity, by running a text again.

        ids: text and codes before the logits that are not finite, (N,) int32.  vector: (E,).
        """
        network, host, end_of_text = self.network, self.host, self.tokenizers.first_stage.end_of_text
        tokens = stacked(host.to_device(ids[None]), sampling, end_of_text)
        speakers = speaker_rows(network, host.to_device(vector[None]), sampling)
        with watched(network) as found:
            network.next_logits(tokens, speakers, network.new_cache(len(ids)))
        return not_finite(next(iter(found), None), host.dtype, text=1, row=len(ids))

    def fill(self, piece: Piece, codes: np.ndarray, vector: np.ndarray) -> np.ndarray:
        """Run the second stage. codes: (2, F) int32, F > 0 → all codebooks, (Q, F) int32. vector: (E,)."""
        return fill_codebooks(self.second_stage, piece.second, codes, vector, piece.noise)

    def decode(
        self,
        codes: Sequence[np.ndarray],
        noise: Sequence[NormalNoise],
        decoder: Decoder,
        *,
        check: Callable[[], None],
    ) -> list[np.ndarray]:
        """Decode the codes of each piece. (Q, F) int32, F > 0 → samples (L,) float32 each."""
        return self.decoders[decoder].decode(codes, noise, check=check)
