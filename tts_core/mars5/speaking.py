"""One request while it is spoken: its piece under way, and the results of those that ended.

A piece: ids of the autoregressive network, codes of the diffusion, sound of the vocoder, trimmed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tts_core.audio.delivery import Delivery
from tts_core.audio.silence import loud_span
from tts_core.mars5.diffusion import first_noise, make_cells
from tts_core.mars5.engine import DiffusionRun, Mars5Engine
from tts_core.mars5.request import BANDWIDTH_ID, Mars5Piece, Mars5Request, for_vocoder
from tts_core.mars5.sequence import CodecSequence
from tts_core.mars5.tokens import CodecVocabulary
from tts_core.nn.beside import Pending, Then
from tts_core.nn.guard import check_sound
from tts_core.results import FinishReason, GenerationResult, Meter
from tts_core.text.duration import warn_of_cut


class Mars5Speaking:
    """A request, its reference encoded, and its progress. Pieces are heard, then delivered, in order.

    done: True once its last piece is delivered.
    """

    def __init__(self, request: Mars5Request, meter: Meter, vocabulary: CodecVocabulary):
        self.request, self.meter, self.vocabulary, self.done = request, meter, vocabulary, False
        self._delivery = Delivery(request.pacing, meter.sample_rate)
        self._place, self._ids, self._cut_off = 0, 0, False
        self._left = request.max_frames

    @property
    def piece(self) -> Mars5Piece:
        """The piece under way."""
        return self.request.pieces[self._place]

    def sequence(self) -> CodecSequence:
        """Start the ids of the piece under way."""
        return sequence_of(self.request, self.piece, self.vocabulary, self._left)

    def hear(self, sequence: CodecSequence) -> None:
        """Take the ids of the piece; a warning is logged if it was cut off without a caller's limit."""
        self._ids += len(sequence.generated)
        self._cut_off |= sequence.finish_reason == "length"
        if self._left is None:
            warn_if_cut(self.request, self.piece, sequence)

    def deliver(self, codes: np.ndarray, sound: np.ndarray, *, peak_bytes: int) -> GenerationResult:
        """Take the piece's codes (Q, T) and samples (L,); the next piece is then under way."""
        self._left = None if self._left is None else self._left - codes.shape[1]
        self.done = self._place == len(self.request.pieces) - 1
        if self._left == 0 and not self.done:
            self.done = self._cut_off = True
        audio = self._delivery.add(sound, last_of_piece=not self.done)
        reason: FinishReason | None = None
        if self.done:
            audio = np.concatenate([audio, self._delivery.finish()])
            reason = "length" if self._cut_off else "stop"
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


def sequence_of(
    request: Mars5Request, piece: Mars5Piece, vocabulary: CodecVocabulary, max_frames: int | None
) -> CodecSequence:
    """Start a piece's ids. max_frames: limit of new frames; None: its own."""
    limit = request.longest(piece) if max_frames is None else max_frames
    # a deep clone's codes begin with most of the reference's; frames past its length are new
    most = None if limit is None else _known(request) + limit
    return CodecSequence(piece.prompt, vocabulary, request.options.max_len, most)


def warn_if_cut(request: Mars5Request, piece: Mars5Piece, sequence: CodecSequence) -> None:
    """Log a warning if a piece's sequence without a caller's limit did not end by itself."""
    if sequence.finish_reason == "length":
        frames = max(0, len(sequence.codes()) - _known(request))
        warn_of_cut(frames, request.frame_rate, piece.text)


def new_frames(request: Mars5Request, sequence: CodecSequence) -> int:
    """Count the frames to draw that are not the reference's."""
    return max(0, len(sequence.codes()) - _known(request))


class Nothing:
    """The diffusion of a piece without new frames."""

    done = True

    def __init__(self, codebooks: int):
        self.codebooks = codebooks

    def result(self) -> np.ndarray:
        """Return no codes, (Q, 0) int32."""
        return np.zeros((self.codebooks, 0), np.int32)


def begin_codes(
    engine: Mars5Engine, request: Mars5Request, piece: Mars5Piece, sequence: CodecSequence
) -> DiffusionRun:
    """Begin a piece's diffusion."""
    config, codes, first = engine.nar_config, request.voice.codes, sequence.codes()
    if not new_frames(request, sequence):
        return Nothing(config.n_output_codebooks)
    assert codes is not None, "the reference is encoded first"
    start = first_noise(piece.noise, config.n_codebooks, len(first), config.n_classes)
    # a deep clone's reference is used twice: as known cells, and again at the start of `first`
    cells = make_cells(first, start, codes if request.deep else None, n_classes=config.n_classes)
    text = piece.prompt.tokens[: piece.prompt.text_tokens]
    return engine.begin(text, codes, cells, request.diffusion, piece.noise)


def trimmed_sounds(
    engine: Mars5Engine, codes: Sequence[np.ndarray], trim_db: Sequence[float]
) -> list[np.ndarray]:
    """Decode codes (Q, T) of each piece to samples (L,) float32, without the silence at both ends.

    Raises GenerationError for a piece whose samples are all zero.
    """
    return _trimmed(engine.decode(_read(engine, codes), BANDWIDTH_ID), trim_db)


def launch_sounds(
    engine: Mars5Engine, codes: Sequence[np.ndarray], trim_db: Sequence[float]
) -> Pending[list[np.ndarray]]:
    """Begin the same, where the host `overlaps` beside other work."""
    launched = engine.launch(_read(engine, codes), BANDWIDTH_ID)
    return Then(launched, lambda sounds: _trimmed(sounds, trim_db))


def _read(engine: Mars5Engine, codes: Sequence[np.ndarray]) -> list[np.ndarray]:
    known = engine.vocoder_config
    return [for_vocoder(one, known.n_codebooks, known.codebook_size) for one in codes]


def _trimmed(decoded: Sequence[np.ndarray], trim_db: Sequence[float]) -> list[np.ndarray]:
    sounds = []
    for audio, limit in zip(decoded, trim_db, strict=True):
        check_sound(audio)
        start, stop = loud_span(audio, limit)
        sounds.append(audio[start:stop])
    return sounds


def _known(request: Mars5Request) -> int:
    """Frames at the start of a sequence's codes that are the reference's."""
    return request.voice.frames if request.deep else 0
