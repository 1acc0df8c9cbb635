"""A request of Dia2 in progress: its pieces in order, each a run whose complete windows are to be decoded."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import numpy as np

from tts_core.audio.delivery import Pacing
from tts_core.codecs.policy import CodecPolicy
from tts_core.dia2.arriving import ArrivingEntries
from tts_core.dia2.engine import Dia2Engine
from tts_core.dia2.pieces import room, written
from tts_core.dia2.request import Dia2Request, longest_frames
from tts_core.dia2.run import Dia2Run
from tts_core.dia2.slots import Dia2Joining
from tts_core.printable import counted
from tts_core.results import FinishReason
from tts_core.serving.slot_session import Member
from tts_core.speaking.speech import CodecMemory
from tts_core.speech.fed_session import FedSpeaking, PieceWindow

_LOG = logging.getLogger("tts_core")


class Dia2Speaking(FedSpeaking):
    """A request that has joined: its runs, one a piece, and the parts of its speech.

    is_over: its last step has run, or failed; what was spoken is still to be given out.
    """

    def __init__(
        self,
        member: Member,
        request: Dia2Request,
        engine: Dia2Engine,
        *,
        policy: CodecPolicy,
        has_sound: bool,
    ):
        super().__init__(member, request, engine, policy=policy, has_sound=has_sound)
        facts = request.facts
        self.arriving: ArrivingEntries | None = None
        if request.is_open:
            self.arriving = ArrivingEntries(facts.reader, room(facts.config, request.options.initial_padding))
        self.prefix = request.prefix(engine.encode)
        self.is_over = False
        self._rows, self._left = 0, request.max_frames
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

    def windows(self) -> Iterator[PieceWindow]:
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
            yield PieceWindow(codes, self._memory, self._token_count, words[:begun])
        if run.is_done:
            yield self._end()

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
            initial_padding=self.request.options.initial_padding,
            max_frames=None if most is None or most >= longest_frames(config) else most,
            keeps_prefix=self.request.options.include_prefix and self.place == 0,
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

    def _end(self) -> PieceWindow:
        """Build the window that ends the piece, without frames."""
        request, facts, pacing = self.request, self.request.facts, None
        if self.arriving is not None:
            said = written(facts.reader, self.run.own)
            pacing = Pacing((said,), (None, None), request.pacing.speed)
        return PieceWindow(
            np.zeros((facts.config.n_streams, 0), np.int32),
            self._memory,
            self._token_count,
            self.run.words(facts.codec.frame_rate)[self._told :],
            is_last=True,
            finish_reason=self.finish_reason,
            pacing=pacing,
        )
