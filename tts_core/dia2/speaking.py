"""A request of Dia2 in progress: its pieces in order, each a run whose complete windows are to be decoded."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from tts_core.audio.delivery import Delivery, Pacing
from tts_core.codecs.policy import CodecPolicy
from tts_core.dia2.arriving import ArrivingEntries
from tts_core.dia2.engine import Dia2Engine
from tts_core.dia2.pieces import room, written
from tts_core.dia2.prefix import Prefix
from tts_core.dia2.request import Dia2Request, longest_frames
from tts_core.dia2.run import Dia2Run
from tts_core.dia2.slots import Dia2Joining
from tts_core.printable import counted
from tts_core.results import FinishReason, GenerationResult, Meter
from tts_core.serving.sounding import CodecMemory
from tts_core.text.captions import Word

_LOG = logging.getLogger("tts_core")


@dataclass(frozen=True, eq=False)
class Dia2Window:
    """Frames of a piece that are known, (Q, F), or its end, without frames.

    words: that begin in it.
    token_count: steps so far.
    memory: of its piece.
    """

    codes: np.ndarray
    words: list[Word]
    token_count: int
    memory: CodecMemory


@dataclass(frozen=True, eq=False)
class End(Dia2Window):
    """The end of a piece, with the words that begin later.

    finish_reason: of the speech; None if another piece follows.
    said: what was spoken, where the text came in pieces.
    """

    finish_reason: FinishReason | None = None
    said: str | None = None


class Dia2Speaking:
    """The runs of a request, one a piece, and the parts of its speech.

    encode: recordings, (L,) float32 → codes (Q, P).
    policy: the codec's windows.
    """

    def __init__(
        self,
        engine: Dia2Engine,
        request: Dia2Request,
        *,
        encode: Callable[[np.ndarray], np.ndarray],
        policy: CodecPolicy,
    ):
        self.engine, self.request, self.policy, facts = engine, request, policy, request.facts
        self.arriving: ArrivingEntries | None = None
        if request.is_open:
            self.arriving = ArrivingEntries(facts.reader, room(facts.config, request.initial_padding))
        self.meter = Meter(facts.codec.sample_rate)
        self.prefix: Prefix | None = request.prefix(encode)
        self.delivery = Delivery(request.pacing, facts.codec.sample_rate, more=request.is_open)
        self.place = self._segment = self._rows = 0
        self._left = request.max_frames
        self._begin()

    def joining(self) -> Dia2Joining:
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
        return Dia2Joining(before, self.run.start, self.request.sampling, self.request.noise_of(self.place))

    def hear(self, text: str | None) -> None:
        """Take a piece of text that came; None is the end. Raises UsageError for unreadable text."""
        if self.arriving is not None:
            self.arriving.hear(text)
            self._supply()

    def act(self, action: int) -> tuple[int, int]:
        """Take a step's action, as Dia2Run.act."""
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

    def windows(self) -> Iterator[Dia2Window]:
        """Yield the windows that are complete and not yielded yet; after a piece's last one, its end."""
        run, rate = self.run, self.request.facts.codec.frame_rate
        while run.frames > self._asked:
            stop = self.policy.served_stop(self._asked)
            if run.frames < stop and not run.is_done:
                return
            stop = min(stop, run.frames)
            words = run.words(rate)[self._told :]
            begun = sum(word.start * rate < stop for word in words)
            codes = run.codes(self._asked, stop)
            self._asked, self._told = stop, self._told + begun
            yield Dia2Window(codes, words[:begun], self._token_count, self._memory)
        if run.is_done:
            yield self._end()

    def nothing(self) -> Dia2Window:
        """Build a window without frames."""
        codes = np.zeros((self.request.facts.config.n_streams, 0), np.int32)
        return Dia2Window(codes, [], self._token_count, self._memory)

    def part(self, window: Dia2Window, audio: np.ndarray) -> GenerationResult:
        """Build the next part from a window and its samples (L,)."""
        self.delivery.time(window.words)
        if not isinstance(window, End):
            return self._part(window, self.delivery.add(np.clip(audio, -1, 1)), None)
        if window.said is not None:
            self.delivery.extend(Pacing((window.said,), (None, None), self.request.pacing.speed))
        reason = window.finish_reason
        sound = self.delivery.add(audio, last_of_piece=reason is None)
        if reason is not None:
            sound = np.concatenate([sound, self.delivery.finish()])
        return self._part(window, sound, reason)

    def next(self) -> None:
        """Begin the next piece, after the end of the one before."""
        if self.prefix is None:
            self.prefix = self.run.beginning(self.request.voice_frames)
        self._rows += self.run.step - self.run.start
        if self._left is not None:
            self._left -= self.run.spoken
        self.place += 1
        self._begin()

    def _begin(self) -> None:
        config, most = self.request.facts.config, self._left
        self.run = Dia2Run(
            config,
            () if self.request.is_open else self.request.pieces[self.place].entries,
            prefix=self.prefix,
            initial_padding=self.request.initial_padding,
            max_frames=None if most is None or most >= longest_frames(config) else most,
            keeps_prefix=self.request.include_prefix and self.place == 0,
            is_open=self.request.is_open,
        )
        self._supply()
        self._asked, self._told = 0, 0  # frames and words of the piece that were yielded
        self._memory = CodecMemory()

    def _supply(self) -> None:
        if self.arriving is not None:
            self.arriving.supply(self.run)

    @property
    def _token_count(self) -> int:
        return self._rows + self.run.step - self.run.start

    def _end(self) -> End:
        facts, nothing = self.request.facts, self.nothing()
        return End(
            nothing.codes,
            self.run.words(facts.codec.frame_rate)[self._told :],
            nothing.token_count,
            nothing.memory,
            self.finish_reason,
            None if self.arriving is None else written(facts.reader, self.run.own),
        )

    def _part(self, window: Dia2Window, sound: np.ndarray, reason: FinishReason | None) -> GenerationResult:
        self.meter.add(len(sound))
        part = self.meter.result(
            sound,
            window.codes,
            seed=self.request.seed if self.request.noise is None else None,
            token_count=window.token_count,
            peak_bytes=self.engine.host.peak_bytes(),
            segment_idx=self._segment,
            finish_reason=reason,
            cues=self.delivery.cues(),
            words=self.delivery.words(),
        )
        self._segment += 1
        return part
