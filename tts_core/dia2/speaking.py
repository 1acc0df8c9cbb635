"""A request of Dia2 in progress: its pieces in order, each a run whose complete windows are decoded."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tts_core.audio.delivery import Delivery, Pacing
from tts_core.codecs.policy import CodecPolicy
from tts_core.dia2.arriving import Arriving
from tts_core.dia2.pieces import room, written
from tts_core.dia2.prefix import Prefix
from tts_core.dia2.request import Request, longest_frames
from tts_core.dia2.run import Run
from tts_core.dia2.slots import Joining
from tts_core.nn.calls import apart
from tts_core.nn.guard import check_sound
from tts_core.printable import counted
from tts_core.results import FinishReason, GenerationResult, Meter

if TYPE_CHECKING:
    from tts_core.dia2.pipeline import Engine

_LOG = logging.getLogger("tts_core")


class Speaking:
    """The runs of a request, one a piece, and the sound of their codes.

    encode: recordings, (L,) float32 → codes (Q, P).
    policy: the codec's windows.
    sound: False for codes alone, without samples.
    """

    def __init__(
        self,
        engine: Engine,
        request: Request,
        *,
        encode: Callable[[np.ndarray], np.ndarray],
        policy: CodecPolicy,
        sound: bool = True,
    ):
        self.engine, self.request, self.policy, facts = engine, request, policy, request.facts
        self._has_sound = sound
        self.arriving: Arriving | None = None
        if request.is_open:
            self.arriving = Arriving(facts.reader, room(facts.config, request.initial_padding))
        self.meter = Meter(facts.codec.sample_rate)
        self.prefix: Prefix | None = request.prefix(encode)
        self.delivery = Delivery(request.pacing, facts.codec.sample_rate, more=request.is_open)
        self.place = self._segment = self._rows = 0
        self._left = request.max_frames
        self._begin()

    def joining(self) -> Joining:
        """Read the piece's prefix; returns the text for a slot."""
        before = self.run.warm_up()
        self._supply()
        late = self.run.late_words()
        if late and not self.place:
            _LOG.warning(
                "prompt: %s of the recordings will be spoken again, from %r on: the words come too close to "
                "each other or to the end; give them earlier times, or leave them out",
                counted(len(late), "word"),
                late[0],
            )
        return Joining(before, self.run.start, self.request.sampling, self.request.noise_of(self.place))

    def hear(self, text: str | None) -> None:
        """Take a piece of text that came; None is the end. Raises UsageError for unreadable text."""
        if self.arriving is not None:
            self.arriving.hear(text)
            self._supply()

    def act(self, action: int) -> tuple[int, int]:
        """Take a step's action, as Run.act."""
        texts = self.run.act(action)
        self._supply()
        return texts

    @property
    def finish_reason(self) -> FinishReason | None:
        """Of the speech, once the piece under way is done; None if another piece follows."""
        reason = self.run.finish_reason
        if self.arriving is None:
            has_more = self.place + 1 < len(self.request.pieces)
        else:
            has_more = self.arriving.has_entries
        if reason == "stop" and has_more:
            return "length" if self._left is not None and self.run.spoken >= self._left else None
        return reason

    def parts(self) -> Iterator[GenerationResult]:
        """Yield the windows that are complete; after a piece's last one, a part with the words that begin
        later, which ends the speech if it is the last piece.
        """
        run, rate = self.run, self.request.facts.codec.frame_rate
        while run.frames > self._made:
            stop = self.policy.served_stop(self._made)
            if run.frames < stop and not run.is_done:
                return
            stop = min(stop, run.frames)
            codes = run.codes(self._made, stop)
            audio = self._decode(codes)
            words = run.words(rate)[self._told :]
            begun = sum(word.start * rate < stop for word in words)
            self._made, self._told = stop, self._told + begun
            self.delivery.time(words[:begun])
            yield self._part(self.delivery.add(np.clip(audio, -1, 1)), codes, None)
        if run.is_done:
            yield self._end()

    def _decode(self, codes: np.ndarray) -> np.ndarray:
        """Decode the next frames of the piece. (Q, F) → samples (L,)."""
        if not self._has_sound:
            return np.zeros(0, np.float32)
        audio, self._memory = apart(self.engine.host, partial(self.engine.decode, codes, self._memory))
        check_sound(audio)
        return audio

    def next(self) -> None:
        """Begin the next piece, after the last part of the one before."""
        if self.prefix is None:
            self.prefix = self.run.beginning(self.request.voice_frames)
        self._rows += self.run.step - self.run.start
        if self._left is not None:
            self._left -= self.run.spoken
        self.place += 1
        self._begin()

    def _begin(self) -> None:
        config, most = self.request.facts.config, self._left
        self.run = Run(
            config,
            () if self.request.is_open else self.request.pieces[self.place].entries,
            prefix=self.prefix,
            initial_padding=self.request.initial_padding,
            max_frames=None if most is None or most >= longest_frames(config) else most,
            keeps_prefix=self.request.include_prefix and self.place == 0,
            is_open=self.request.is_open,
        )
        self._supply()
        self._made, self._told = 0, 0  # frames and words of the piece that were given out
        self._memory: Any = None  # the codec's

    def _supply(self) -> None:
        if self.arriving is not None:
            self.arriving.supply(self.run)

    def _end(self) -> GenerationResult:
        facts, reason = self.request.facts, self.finish_reason
        self.delivery.time(self.run.words(facts.codec.frame_rate)[self._told :])
        if self.arriving is not None:
            text = written(facts.reader, self.run.own)
            self.delivery.extend(Pacing((text,), (None, None), self.request.pacing.speed))
        sound = self.delivery.add(np.zeros(0, np.float32), last_of_piece=reason is None)
        if reason is not None:
            sound = np.concatenate([sound, self.delivery.finish()])
        return self._part(sound, np.zeros((facts.config.n_streams, 0), np.int32), reason)

    def _part(self, sound: np.ndarray, codes: np.ndarray, reason: FinishReason | None) -> GenerationResult:
        self.meter.add(len(sound))
        part = self.meter.result(
            sound,
            codes,
            seed=self.request.seed if self.request.noise is None else None,
            token_count=self._rows + self.run.step - self.run.start,
            peak_bytes=self.engine.host.peak_bytes(),
            segment_idx=self._segment,
            finish_reason=reason,
            cues=self.delivery.cues(),
            words=self.delivery.words(),
        )
        self._segment += 1
        return part
