"""A request of Qwen3-TTS while it is spoken: its piece under way, its frames, and the sound of those."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from tts_core.audio.delivery import Delivery
from tts_core.codecs.policy import CodecPolicy
from tts_core.nn.beside import Pending, Then
from tts_core.qwen3.engine import Qwen3Engine
from tts_core.qwen3.layout import cut_of_recording
from tts_core.qwen3.live import Live
from tts_core.qwen3.request import Qwen3Piece, Qwen3Request
from tts_core.qwen3.rows import Qwen3Joining
from tts_core.results import FinishReason
from tts_core.serving.slot_session import Member
from tts_core.serving.sounding import CodecMemory
from tts_core.speech.fed_session import FedSpeaking, PieceWindow

_LOG = logging.getLogger("tts_core")


class Qwen3Speaking(FedSpeaking):
    """A request that has joined.

    policy: the codec's windows; None decodes pieces as a whole.
    vector: (D,) of its recording.
    before: the codes of a recording that speech continues, (Q, F).
    drawn: frames of the piece under way, (Q,) each.
    is_over: the piece's speech has ended.
    """

    def __init__(
        self,
        member: Member,
        request: Qwen3Request,
        engine: Qwen3Engine,
        *,
        policy: CodecPolicy | None,
        has_sound: bool,
    ):
        voice = request.voice
        self.before = engine.encode(voice.samples) if voice.transcript and voice.samples is not None else None
        self.vector = voice.vector_of(engine.vector)
        super().__init__(member, request, engine, policy=policy, has_sound=has_sound)
        self.live = Live(request) if request.is_open else None
        self._spoken = self._rows = 0  # frames of the pieces before; rows read
        self._has_ended = True  # False once a piece was cut off
        self._begin()

    @property
    def pieces(self) -> Sequence[Qwen3Piece]:
        """Pieces of the text; of one that goes on, those that have begun."""
        return self.request.pieces if self.live is None else self.live.pieces

    @property
    def piece(self) -> Qwen3Piece:
        """The piece under way."""
        return self.pieces[self.place]

    @property
    def limit(self) -> int:
        """Most frames of the piece under way."""
        most = self.request.max_frames
        return self.piece.frames if most is None else min(self.piece.frames, most - self._spoken)

    def hear(self, text: str | None) -> None:
        """Take a fragment of a text that goes on; None is the end. Raises UsageError."""
        if self.live is not None:
            self.live.hear(text)

    @property
    def can_begin(self) -> bool:
        """True if the text of the next piece has come."""
        return self.live is None or self.place < len(self.live.pieces) or self.live.is_ready

    def joining(self) -> Qwen3Joining | None:
        """Build the text of the piece under way for a slot; None if its text has not come."""
        if self.live is not None and self.place == len(self.live.pieces):
            if not self.live.is_ready:
                return None
            self.live.begin()
            if not self.place:
                pacing = replace(self.request.pacing, silences=(self.live.arriving.lead,))
                self.delivery = Delivery(pacing, self.delivery.sample_rate, more=True)
        piece = self.piece
        return Qwen3Joining(
            piece.layout, self.request.sampling, piece.noise, self.vector, self.before, more=piece.more
        )

    def take(self, codes: np.ndarray) -> None:
        """Take a step's codes, (Q,): a frame, or the end of speech."""
        if codes[0] == self.request.facts.config.codec_eos_id:
            self.is_over = True
            return
        self.drawn.append(codes)
        if len(self.drawn) >= self.limit:
            self.is_over, self._has_ended = True, False
            if self.request.max_frames is None:
                _LOG.warning(
                    "text: piece %d of %d did not end within %.1f s, longer than anybody reads it, and was "
                    "cut there; another seed or shorter pieces may help",
                    *(self.place + 1, len(self.pieces), self.seconds),
                )

    @property
    def seconds(self) -> float:
        """Seconds of the piece under way, so far."""
        return len(self.drawn) / self.request.facts.codec.frame_rate

    @property
    def is_last(self) -> bool | None:
        """Whether no piece follows the one under way; None if the text does not say yet."""
        most = self.request.max_frames
        if most is not None and self._spoken + len(self.drawn) >= most:
            return True
        followed = self.place + 1 < len(self.pieces) if self.live is None else self.live.is_followed
        return None if followed is None else not followed

    def windows(self) -> Iterator[PieceWindow]:
        """Yield the windows that are complete and not yielded yet.

        The last one of a piece ends it; where only further text says whether another one follows, that is a
        window without frames.
        """
        while not self._is_asked:
            start, frames = self._asked, len(self.drawn)
            stop = frames if self.policy is None else self.policy.served_stop(start)
            if not self.is_over and (self.policy is None or frames < stop):
                return
            if self.is_over and start == frames and self.is_last is None:
                return
            self._asked = stop = min(stop, frames)
            self._is_asked = self.is_over and stop == frames and self.is_last is not None
            if self._is_asked:
                self._rows += len(self.piece.layout.text) + frames
            yield self._window(self.drawn[start:stop])
            if self.is_over and stop == frames and not self._is_asked:
                return

    @property
    def is_done(self) -> bool:
        """True once the windows of the piece under way are all yielded, and another piece follows."""
        return self._is_asked and not self.is_last

    def next(self) -> None:
        """Begin the next piece, after the last part of the one before."""
        self._spoken += len(self.drawn)
        self.place += 1
        self._begin()

    def launch(self, window: PieceWindow) -> Pending[np.ndarray]:
        codes, memory = window.codes, window.memory
        if self.policy is None:
            return self._launch_whole(codes)
        if self.before is None or memory.kept is not None:
            return super().launch(window)
        cuts = self.policy.even_cuts(self.before.shape[1])
        pieces = [*(self.before[:, start:stop] for start, stop in cuts), codes]
        samples, memory.kept = self.engine.launch(pieces, None)
        return samples

    def _begin(self) -> None:
        self.drawn: list[np.ndarray] = []
        self.is_over = self._is_asked = False  # all of the piece is in windows
        self._asked, self._memory = 0, CodecMemory()  # its frames that are in windows, and those' memory

    def _window(self, drawn: list[np.ndarray]) -> PieceWindow:
        return PieceWindow(
            np.array(drawn, np.int32).reshape(-1, self.request.facts.config.n_codebooks).T,
            self._memory,
            self._rows,
            is_last=self._is_asked,
            finish_reason=self._reason(),
            pacing=self.live.pacing() if self.live is not None and self._is_asked else None,
        )

    def _launch_whole(self, codes: np.ndarray) -> Pending[np.ndarray]:
        if self.before is None:
            return self.engine.launch_whole(codes)
        recording, heard = self.before.shape[1], np.concatenate([self.before, codes], axis=1)

        def speech(samples: np.ndarray) -> np.ndarray:
            return samples[cut_of_recording(recording, heard.shape[1], len(samples)) :]

        return Then(self.engine.launch_whole(heard), speech)

    def _reason(self) -> FinishReason | None:
        if not (self._is_asked and self.is_last):
            return None
        rest = self.place + 1 < len(self.pieces) if self.live is None else self.live.is_followed is not False
        return "stop" if self._has_ended and not rest else "length"
