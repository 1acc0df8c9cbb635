"""MetaVoice's engine: speaker vectors, the two stages, and the decoders of either side.

Source: metavoiceio/metavoice-src, July 2024 (Apache-2.0).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np

from tts_core.audio.loudness import normalize_loudness
from tts_core.audio.voice_cache import VoiceCache
from tts_core.codecs.vocos_calls import Vocoder
from tts_core.errors import GenerationError
from tts_core.metavoice.decoding import DiffusionDecoder, VocosDecoder
from tts_core.metavoice.options import Decoder
from tts_core.metavoice.request import MetaVoiceFacts, MetaVoicePiece
from tts_core.metavoice.sampling import FirstStageSampling
from tts_core.metavoice.text import Tokenizers
from tts_core.nn.beside import Pending, Then
from tts_core.nn.calls import apart
from tts_core.nn.guard import check_sound
from tts_core.nn.host import Device
from tts_core.nn.noise import NormalNoise
from tts_core.serving.turns import Slots


class MetaVoiceSlots(Slots, Protocol):
    """A running batch of the first stage, `metavoice/slots.py`."""

    def fits(self, sampling: FirstStageSampling) -> bool:
        """Return whether there are rows for a text with this sampling."""
        ...


class MetaVoiceEngine:
    """MetaVoice's networks with their tokenizers, and a cache of voices.

    configs: of all parts, by kind.
    network: the first stage.
    diffusion: with its codec; None if the model has none.
    make_slots: of the first stage, `metavoice/slots.py`.
    fill_codebooks: with the second stage, `metavoice/codes.py`.
    fault: of the first stage, `metavoice/guidance.py`.
    """

    def __init__(
        self,
        configs: Mapping[str, object],
        tokenizers: Tokenizers,
        network: Any,
        second_stage: Any,
        speaker_encoder: Any,
        vocoder: Vocoder,
        diffusion: tuple[Any, Any] | None,
        host: Device,
        *,
        make_slots: Callable[..., MetaVoiceSlots],
        fill_codebooks: Callable[..., np.ndarray],
        fault: Callable[..., GenerationError],
    ):
        self.configs, self.tokenizers, self.host = configs, tokenizers, host
        self.facts = MetaVoiceFacts.of(configs, tokenizers)
        self.network, self.second_stage, self.speaker_encoder = network, second_stage, speaker_encoder
        self._make_slots, self._fill_codebooks, self._fault = make_slots, fill_codebooks, fault
        self.voices = VoiceCache()
        self.decoders: dict[Decoder, VocosDecoder | DiffusionDecoder] = {"vocos": VocosDecoder(vocoder, host)}
        if diffusion is not None:
            self.decoders["mbd"] = DiffusionDecoder(*diffusion, host)

    def speaker(self, utterances: Sequence[np.ndarray]) -> np.ndarray:
        """Encode recordings, (L,) float32 samples at 16 kHz each, as the voice's vector, (E,) float32."""
        embed = self.speaker_encoder.embed
        return self.voices.encoded(utterances, lambda ones: apart(self.host, partial(embed, ones))).copy()

    def slots(self, texts: int, rows: int, room: int) -> MetaVoiceSlots:
        """Open a running batch of the first stage for as many texts, on as many rows of `room` ids."""
        end_of_text = self.tokenizers.first_stage.end_of_text
        return self._make_slots(self.network, texts=texts, rows=rows, room=room, end_of_text=end_of_text)

    def fault(self, ids: np.ndarray, vector: np.ndarray, sampling: FirstStageSampling) -> GenerationError:
        """Build the error that names the first layer with NaN or infinity, by running a text again.

        ids: text and codes before the logits that are not finite, (N,) int32.  vector: (E,).
        """
        return self._fault(self.network, ids, vector, sampling, self.tokenizers.first_stage.end_of_text)

    def fill(self, piece: MetaVoicePiece, codes: np.ndarray, vector: np.ndarray) -> np.ndarray:
        """Run the second stage. codes: (2, F) int32 → all codebooks, (Q, F) int32. vector: (E,)."""
        if not codes.shape[1]:
            return np.zeros((self.facts.second.n_codebooks, 0), np.int32)
        return self._fill_codebooks(self.second_stage, piece.second, codes, vector, piece.noise)

    def decode(
        self,
        codes: Sequence[np.ndarray],
        noise: Sequence[NormalNoise],
        decoder: Decoder,
        *,
        check: Callable[[], None],
    ) -> list[np.ndarray]:
        """Decode the codes (Q, F) int32 of each piece to samples (L,) float32 at the target loudness.

        check: called between windows or timesteps.
        Raises GenerationError for a piece whose samples are all zero.
        """
        places, waves = _sounding(codes), []
        if places:
            given = [codes[place] for place in places], [noise[place] for place in places]
            waves = self.decoders[decoder].decode(*given, check=check)
        return self._normalized(waves, places, len(codes))

    def launch(self, codes: Sequence[np.ndarray], decoder: Decoder) -> Pending[list[np.ndarray]] | None:
        """Begin the same, where the host `overlaps` beside other work; None for a decoder that cannot."""
        places = _sounding(codes)
        launched = self.decoders[decoder].launch([codes[place] for place in places])
        if launched is None:
            return None
        return Then(launched, lambda waves: self._normalized(waves, places, len(codes)))

    def _normalized(
        self, waves: Sequence[np.ndarray], places: Sequence[int], pieces: int
    ) -> list[np.ndarray]:
        """Level the waves of the pieces at `places`; others are empty."""
        made = [np.zeros(0, np.float32)] * pieces
        for place, wave in zip(places, waves, strict=True):
            check_sound(wave)
            made[place] = normalize_loudness(wave, self.facts.vocoder.sample_rate)
        return made


def _sounding(codes: Sequence[np.ndarray]) -> list[int]:
    """List the pieces that have frames."""
    return [place for place, one in enumerate(codes) if one.shape[1]]
