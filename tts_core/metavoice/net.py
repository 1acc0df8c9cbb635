"""MetaVoice's networks: speaker vectors, the two stages, and the decoders of either side.

Source: metavoiceio/metavoice-src, July 2024 (Apache-2.0).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from tts_core.audio.voice_cache import VoiceCache
from tts_core.codecs.policy import CodecPolicy
from tts_core.errors import GenerationError
from tts_core.memory.fits import together
from tts_core.metavoice.config import FIRST_STAGE_BOOKS
from tts_core.metavoice.decoding import DiffusionDecoder, VocosDecoder
from tts_core.metavoice.footprint import PLAN, MetaVoiceJob, positions
from tts_core.metavoice.inputs import FirstStageSampling, most_rows
from tts_core.metavoice.options import Decoder
from tts_core.metavoice.request import STAGES, MetaVoiceFacts, MetaVoicePiece, MetaVoiceRequest, read_voice
from tts_core.nn.beside import Pending
from tts_core.nn.noise import NormalNoise
from tts_core.pipeline import PromptLike
from tts_core.speaking.admission import Admission
from tts_core.speaking.net import SIDE_BY_SIDE, Net, at_once
from tts_core.speaking.running import RunningBatch
from tts_core.speaking.speech import Made, Sound


class MetaVoiceSource(NamedTuple):
    """What a piece's codes are decoded with. noise: of the diffusion."""

    decoder: Decoder
    noise: NormalNoise


class MetaVoiceNet(Net):
    """MetaVoice's networks, the first stage first, and a cache of voices.

    fill_codebooks: with the second stage, `metavoice/codes.py`.
    """

    kinds, facts_of = ("metavoice", "vocos"), MetaVoiceFacts.of
    stages, sounding, plan = STAGES, STAGES[-1], PLAN

    def __init__(
        self, networks: Mapping[str, Any], *given: Any, fill_codebooks: Callable[..., np.ndarray], **how: Any
    ):
        super().__init__(networks, *given, **how)
        self.second_stage = networks["metavoice_second_stage"]
        self.speaker_encoder = networks["metavoice_speaker_encoder"]
        self._fill_codebooks, self.voices = fill_codebooks, VoiceCache()
        self.decoders: dict[Decoder, VocosDecoder | DiffusionDecoder] = {
            "vocos": VocosDecoder(self.codec, self.host)
        }
        if "mbd" in networks:
            self.decoders["mbd"] = DiffusionDecoder(networks["encodec"], networks["mbd"], self.host)

    def together(
        self, requests: Sequence[MetaVoiceRequest], most: int | None = None
    ) -> tuple[MetaVoiceJob, int]:
        """As of any model, for requests of one sampling."""
        pieces = min(most or SIDE_BY_SIDE, sum(map(at_once, requests)))
        job = replace(together([request.job() for request in requests]), batch=pieces)
        if len(requests) == 1:
            whole = lambda texts: replace(job, batch=texts)  # noqa: E731
            job = whole(max(1, self.plan.places(self.configs, whole, pieces, self.host.machine())))
        self.check(job)
        return job, job.batch

    def is_late(self, requests: Sequence[MetaVoiceRequest], places: int) -> bool:
        """As of any model: for a diffusion, whose bands are loaded for each call."""
        return requests[0].decoder == "mbd"

    def open(
        self, places: int, job: MetaVoiceJob | None, policy: CodecPolicy | None
    ) -> tuple[RunningBatch, Admission]:
        """As of any model. Each text takes as many rows as the one with the most; guidance on speaker and
        text takes a row more.
        """
        window = self.facts.first.max_position_embeddings
        unknown = MetaVoiceJob(text_ids=1, frames=window // FIRST_STAGE_BOOKS, rows=1)

        def whole(texts: int) -> MetaVoiceJob:
            return replace(job, batch=texts) if job else replace(unknown, batch=most_rows(texts))

        def holds(requests: Sequence[MetaVoiceRequest]) -> bool:
            return len(requests) * max(request.sampling.rows for request in requests) <= rows

        admission = self.admission(places, whole, holds=holds)
        longest = whole(admission.places)
        rows = longest.batch * longest.rows
        capacity = window - 1 if job is None else positions(self.facts.first, job)
        return self.slots(admission.places, rows, capacity), admission

    def speaker(self, utterances: Sequence[np.ndarray]) -> np.ndarray:
        """Encode recordings, (L,) float32 samples at 16 kHz each, as the voice's vector, (E,) float32."""
        return self._encoded(self.voices, utterances, self.speaker_encoder.embed)

    def voice(self, prompt: PromptLike) -> np.ndarray:
        """Encode a prompt as a voice's vector, (E,) float32."""
        return read_voice(self.facts, prompt).encoded(self.speaker)

    def slots(self, texts: int, rows: int, capacity: int) -> RunningBatch:
        """Open a running batch of the first stage for as many texts, on as many rows of `capacity` ids."""
        end_of_text = self.facts.tokenizers.first_stage.end_of_text
        return self._make_slots(
            self.network, texts=texts, rows=rows, capacity=capacity, end_of_text=end_of_text
        )

    def fault(self, ids: np.ndarray, vector: np.ndarray, sampling: FirstStageSampling) -> GenerationError:
        """Build the error that names the first layer with NaN or infinity, by running a text again.

        ids: text and codes before the logits that are not finite, (N,) int32.  vector: (E,).
        """
        return self._fault(self.network, ids, vector, sampling, self.facts.tokenizers.first_stage.end_of_text)

    def fill(self, piece: MetaVoicePiece, codes: np.ndarray, vector: np.ndarray) -> Made:
        """Run the second stage. codes: (2, F) int32 → all codebooks, (Q, F) int32. vector: (E,)."""
        if not codes.shape[1]:
            return Made(np.zeros((self.facts.second.n_codebooks, 0), np.int32))
        return Made(self._fill_codebooks(self.second_stage, piece.second, codes, vector, piece.noise))

    def split(self, windows: Sequence[Sound], policy: CodecPolicy | None) -> Iterable[Sequence[int]]:
        """Divide pieces into calls, each of one decoder."""
        decoders = [window.source.decoder for window in windows]
        return [
            [index for index, own_decoder in enumerate(decoders) if own_decoder == decoder]
            for decoder in dict.fromkeys(decoders)
        ]

    def launch(
        self, windows: Sequence[Sound], policy: CodecPolicy | None
    ) -> Pending[list[np.ndarray]] | None:
        return self._decoder(windows).launch([window.codes for window in windows])

    def _decode_now(
        self, windows: Sequence[Sound], policy: CodecPolicy | None, check: Callable[[], None]
    ) -> list[np.ndarray]:
        """As of any model. check: called between windows or timesteps."""
        codes, noise = [window.codes for window in windows], [window.source.noise for window in windows]
        return self._decoder(windows).decode(codes, noise, check=check)

    def _decoder(self, windows: Sequence[Sound]) -> VocosDecoder | DiffusionDecoder:
        """Return the decoder of pieces that share a call."""
        return self.decoders[windows[0].source.decoder]
