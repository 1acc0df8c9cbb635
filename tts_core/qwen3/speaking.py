"""A request of Qwen3-TTS while it is spoken: its piece under way, its frames, and the sound of those."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tts_core.audio.delivery import Delivery
from tts_core.codecs.policy import CodecPolicy
from tts_core.nn.guard import check_sound
from tts_core.qwen3.engine import Qwen3Engine
from tts_core.qwen3.layout import cut_of_recording
from tts_core.qwen3.request import Piece, Request
from tts_core.qwen3.rows import Joining
from tts_core.results import FinishReason, GenerationResult, Meter
from tts_core.serving.slot_session import Spoken

_LOG = logging.getLogger("tts_core")


@dataclass(eq=False)
class Speaking(Spoken):
    """A request that has joined.

    policy: the codec's windows; None decodes pieces as a whole.
    sound: False for codes alone.
    vector: (D,) of its recording.  before: the codes of a recording that speech continues, (Q, F).
    """

    request: Request
    engine: Qwen3Engine
    policy: CodecPolicy | None
    sound: bool
    vector: np.ndarray | None
    before: np.ndarray | None
    drawn: list[np.ndarray] = field(default_factory=list)  # (Q,) each, of the piece under way
    place: int = 0  # of that piece
    is_over: bool = field(default=False, init=False)  # the piece's speech has ended
    _is_told: bool = field(default=False, init=False)  # and its last part is out
    _made: int = field(default=0, init=False)  # its frames that are out
    _memory: Any = field(default=None, init=False)  # the codec's, of these

    def __post_init__(self) -> None:
        rate = self.request.facts.codec.sample_rate
        self.meter, self._delivery = Meter(rate), Delivery(self.request.pacing, rate)
        self._spoken = self._rows = self._segment = 0  # frames of the pieces before, rows read, parts so far
        self._has_ended = True  # False once a piece was cut off
        self._begin()

    @property
    def piece(self) -> Piece:
        """The piece under way."""
        return self.request.pieces[self.place]

    @property
    def limit(self) -> int:
        """Most frames of the piece under way."""
        return self.request.frames(self.place, self._spoken)

    def joining(self) -> Joining:
        """Build the text of the piece under way for a slot."""
        piece = self.piece
        return Joining(piece.layout, self.request.sampling, piece.noise, self.vector, self.before)

    def take(self, codes: np.ndarray) -> None:
        """Take a step's codes, (Q,): a frame, or the end of speech."""
        if codes[0] == self.request.facts.config.codec_eos_id:
            self.is_over = True
            return
        self.drawn.append(codes)
        if len(self.drawn) == self.limit:
            self.is_over, self._has_ended = True, False
            if self.request.max_frames is None:
                _LOG.warning(
                    "text: piece %d of %d did not end within %.1f s, longer than anybody reads it, and was "
                    "cut there; another seed or shorter pieces may help",
                    *(self.place + 1, len(self.request.pieces), self.seconds),
                )

    @property
    def seconds(self) -> float:
        """Seconds of the piece under way, so far."""
        return len(self.drawn) / self.request.facts.codec.frame_rate

    @property
    def is_last(self) -> bool:
        """True if no piece follows the one under way."""
        return self.place + 1 == len(self.request.pieces) or (
            self.request.max_frames is not None and self._spoken + len(self.drawn) >= self.request.max_frames
        )

    def parts(self) -> Iterator[GenerationResult]:
        """Yield the windows that are complete; the last one of a piece ends it."""
        while not self._is_told:
            start, frames = self._made, len(self.drawn)
            stop = frames if self.policy is None else self.policy.served_stop(start)
            if not self.is_over and (self.policy is None or frames < stop):
                return
            stop = min(stop, frames)
            self._is_told = self.is_over and stop == frames
            books = self.request.facts.config.n_codebooks
            codes = np.array(self.drawn[start:stop], np.int32).reshape(-1, books).T
            self._made = stop
            yield self._part(codes, np.clip(self._decode(codes), -1, 1))

    def next(self) -> None:
        """Begin the next piece, after the last part of the one before."""
        self._spoken += len(self.drawn)
        self.place += 1
        self.drawn = []
        self._begin()

    def _begin(self) -> None:
        self.is_over = self._is_told = False
        self._made, self._memory = 0, None

    def _decode(self, codes: np.ndarray) -> np.ndarray:
        """Decode the next frames of the piece. (Q, F) → samples (L,)."""
        if not self.sound or not codes.shape[1]:
            return np.zeros(0, np.float32)
        samples = self._whole(codes) if self.policy is None else self._next(codes, self.policy)
        check_sound(samples)
        return samples

    def _whole(self, codes: np.ndarray) -> np.ndarray:
        if self.before is None:
            return self.engine.decode_whole(codes)
        heard = np.concatenate([self.before, codes], axis=1)
        samples = self.engine.decode_whole(heard)
        return samples[cut_of_recording(self.before.shape[1], heard.shape[1], len(samples)) :]

    def _next(self, codes: np.ndarray, policy: CodecPolicy) -> np.ndarray:
        if self.before is not None and self._memory is None:
            for start, stop in policy.even_cuts(self.before.shape[1]):
                _, self._memory = self.engine.decode(self.before[:, start:stop], self._memory)
        samples, self._memory = self.engine.decode(codes, self._memory)
        return samples

    def _part(self, codes: np.ndarray, sound: np.ndarray) -> GenerationResult:
        audio, reason = self._delivery.add(sound), self._reason()
        if reason is not None:
            audio = np.concatenate([audio, self._delivery.finish()])
        elif self._is_told:
            audio = np.concatenate([audio, self._delivery.add(np.zeros(0, np.float32), last_of_piece=True)])
        self.meter.add(len(audio))
        self._segment += 1
        if self._is_told:
            self._rows += len(self.piece.layout.text) + len(self.drawn)
        return self.meter.result(
            audio,
            codes,
            seed=self.request.seed,
            token_count=self._rows,
            peak_bytes=self.engine.host.peak_bytes(),
            segment_idx=self._segment - 1,
            finish_reason=reason,
            cues=self._delivery.cues(),
        )

    def _reason(self) -> FinishReason | None:
        if not (self._is_told and self.is_last):
            return None
        return "stop" if self._has_ended and self.place + 1 == len(self.request.pieces) else "length"
