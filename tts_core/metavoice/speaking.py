"""One request while it is spoken: its piece under way, and the results of those that ended.

Sound of a piece: second stage, decoder, -14 LUFS.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tts_core.audio.delivery import Delivery
from tts_core.audio.loudness import normalize_loudness
from tts_core.metavoice.engine import MetaVoiceEngine
from tts_core.metavoice.options import Decoder
from tts_core.metavoice.request import MetaVoiceFacts, MetaVoicePiece, MetaVoiceRequest, Said
from tts_core.metavoice.sampling import SpeechNoise
from tts_core.nn.beside import Pending, Then
from tts_core.nn.guard import check_sound
from tts_core.results import FinishReason, GenerationResult, Meter


class MetaVoiceSpeaking:
    """A request and its progress. Pieces are heard, then delivered, in order.

    done: True once its last piece is delivered.
    """

    def __init__(self, request: MetaVoiceRequest, meter: Meter):
        self.request, self.meter, self.done = request, meter, False
        self._delivery = Delivery(request.pacing, meter.sample_rate)
        self._place, self._frames, self._ids, self._ended = 0, 0, 0, True

    @property
    def piece(self) -> MetaVoicePiece:
        """The piece under way."""
        return self.request.pieces[self._place]

    @property
    def limit(self) -> int:
        """Most ids that the first stage may draw for it."""
        return self.piece.limit(self.request.frames(self._place, self._frames))

    def hear(self, sequence: np.ndarray) -> Said:
        """Take the first stage's ids of the piece, text included. (N,) int32."""
        said = self.request.said(self._place, sequence, self._frames)
        self._frames, self._ids = self._frames + said.codes.shape[1], self._ids + said.ids
        self._ended = self._ended and said.ended
        return said

    def deliver(self, codes: np.ndarray, sound: np.ndarray, *, peak_bytes: int) -> GenerationResult:
        """Take the piece's codes (Q, F) and samples (L,); the next piece is then under way."""
        at_end = self._place == len(self.request.pieces) - 1
        self.done = at_end or self._frames == self.request.max_frames
        audio = self._delivery.add(sound, last_of_piece=not self.done)
        reason: FinishReason | None = None
        if self.done:
            audio = np.concatenate([audio, self._delivery.finish()])
            reason = "stop" if self._ended and at_end else "length"
        self.meter.add(len(audio))
        self._place += 1
        return self.meter.result(
            audio,
            codes,
            seed=self.request.seed,
            token_count=self._ids,
            peak_bytes=peak_bytes,
            segment_idx=self._place - 1,
            finish_reason=reason,
            cues=self._delivery.cues(),
        )


def all_codes(
    engine: MetaVoiceEngine, facts: MetaVoiceFacts, piece: MetaVoicePiece, said: Said, vector: np.ndarray
) -> np.ndarray:
    """Run the second stage on what was said: codes of all codebooks, (Q, F) int32. vector: (E,)."""
    if not said.codes.shape[1]:
        return np.zeros((facts.second.n_codebooks, 0), np.int32)
    return engine.fill(piece, said.codes, vector)


def sounds(
    engine: MetaVoiceEngine,
    facts: MetaVoiceFacts,
    codes: Sequence[np.ndarray],
    noise: Sequence[SpeechNoise],
    decoder: Decoder,
    *,
    check: Callable[[], None],
) -> list[np.ndarray]:
    """Decode the codes (Q, F) of each piece to samples (L,) float32 at the target loudness.

    check: called between windows or timesteps.
    Raises GenerationError for a piece whose samples are all zero.
    """
    places = _sounding(codes)
    waves = []
    if places:
        waves = engine.decode(
            [codes[place] for place in places], [noise[place] for place in places], decoder, check=check
        )
    return _normalized(facts, waves, places, len(codes))


def launch_sounds(
    engine: MetaVoiceEngine, facts: MetaVoiceFacts, codes: Sequence[np.ndarray], decoder: Decoder
) -> Pending[list[np.ndarray]] | None:
    """Begin the same, where the host `overlaps` beside other work; None for a decoder that cannot."""
    places = _sounding(codes)
    launched = engine.launch([codes[place] for place in places], decoder)
    if launched is None:
        return None
    return Then(launched, lambda waves: _normalized(facts, waves, places, len(codes)))


def _sounding(codes: Sequence[np.ndarray]) -> list[int]:
    return [place for place, one in enumerate(codes) if one.shape[1]]


def _normalized(
    facts: MetaVoiceFacts, waves: Sequence[np.ndarray], places: Sequence[int], pieces: int
) -> list[np.ndarray]:
    made = [np.zeros(0, np.float32)] * pieces
    for place, wave in zip(places, waves, strict=True):
        check_sound(wave)
        made[place] = normalize_loudness(wave, facts.vocoder.sample_rate)
    return made
