"""A request of Dia2 in progress: its pieces in order, each a run whose complete windows are decoded."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from tts_core.audio.delivery import Delivery, Pacing
from tts_core.codecs.policy import CodecPolicy
from tts_core.dia2.prefix import Prefix
from tts_core.dia2.reading import Feed
from tts_core.dia2.request import Request, longest_frames
from tts_core.dia2.run import Run
from tts_core.dia2.slots import Joining
from tts_core.results import FinishReason, GenerationResult, Meter

if TYPE_CHECKING:
    from tts_core.dia2.pipeline import Engine

_LOG = logging.getLogger("tts_core")


class Speaking:
    """The runs of a request, one a piece, and the sound of their codes.

    feed: of a request whose text goes on, in one piece.  encode: recordings, (L,) float32 → codes (Q, P).
    policy: the codec's windows.
    """

    def __init__(
        self,
        engine: Engine,
        request: Request,
        feed: Feed | None,
        *,
        encode: Callable[[np.ndarray], np.ndarray],
        policy: CodecPolicy,
    ):
        self.engine, self.request, self.feed, self.policy = engine, request, feed, policy
        self.meter = Meter(request.facts.codec.sample_rate)
        self.prefix: Prefix | None = request.prefix(encode)
        self.delivery = Delivery(request.pacing, request.facts.codec.sample_rate)
        self.place = self._segment = self._rows = 0
        self._left = request.max_frames
        self._begin()

    def joining(self) -> Joining:
        """Read the piece's prefix; returns the text for a slot."""
        before = self.run.warm_up()
        if late := self.run.late_words():
            _LOG.warning(
                "prompt: %d word(s) of the recordings are spoken again, from %r on: they come too close to "
                "each other or to the end; give them earlier times, or leave them out",
                len(late),
                late[0],
            )
        return Joining(before, self.run.start, self.request.sampling, self.request.noise[self.place])

    def hear(self, text: str | None) -> None:
        """Take a piece of text that came; None is the end. Raises UsageError for unreadable text."""
        if self.feed is None or not self.run.is_open:
            return
        self.run.extend(self.feed.end() if text is None else self.feed.add(text))
        self.run.is_open = text is not None

    @property
    def is_last(self) -> bool:
        """True if no piece follows the one under way."""
        return self.place == len(self.request.pieces) - 1 or self.run.finish_reason == "length"

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
            audio, self._memory = self.engine.decode(codes, self._memory)
            words = run.words(rate)[self._told :]
            begun = sum(word.start * rate < stop for word in words)
            self._made, self._told = stop, self._told + begun
            self.delivery.time(words[:begun])
            yield self._part(self.delivery.add(np.clip(audio, -1, 1)), codes, None)
        if run.is_done:
            yield self._end()

    def next(self) -> None:
        """Begin the next piece, after the last part of the one before."""
        if self.prefix is None:
            self.prefix = self.run.beginning(self.request.voice_frames)
        self._rows += self.run.step - self.run.start
        if self._left is not None:
            self._left -= self.run.frames
        self.place += 1
        self._begin()

    def _begin(self) -> None:
        config, most = self.request.facts.config, self._left
        self.run = Run(
            config,
            self.request.pieces[self.place].entries,
            prefix=self.prefix,
            initial_padding=self.request.initial_padding,
            max_frames=None if most is None or most >= longest_frames(config) else most,
            keeps_prefix=self.request.include_prefix and self.place == 0,
            is_open=self.feed is not None,
        )
        self._made, self._told = 0, 0  # frames and words of the piece that were given out
        self._memory: Any = None  # the codec's

    def _end(self) -> GenerationResult:
        words = self.run.words(self.request.facts.codec.frame_rate)
        self.delivery.time(words[self._told :])
        if self.feed is not None:
            self.delivery.pacing = Pacing((self.feed.said,), (None, None), self.request.pacing.speed)
        sound = self.delivery.add(np.zeros(0, np.float32), last_of_piece=not self.is_last)
        if self.is_last:
            sound = np.concatenate([sound, self.delivery.finish()])
        codes = np.zeros((self.request.facts.config.n_streams, 0), np.int32)
        return self._part(sound, codes, self.run.finish_reason if self.is_last else None)

    def _part(self, sound: np.ndarray, codes: np.ndarray, reason: FinishReason | None) -> GenerationResult:
        self.meter.add(len(sound))
        part = self.meter.result(
            sound,
            codes,
            seed=self.request.seeds[0],
            token_count=self._rows + self.run.step - self.run.start,
            peak_bytes=self.engine.host.peak_bytes(),
            segment_idx=self._segment,
            finish_reason=reason,
            cues=self.delivery.cues(),
            words=self.delivery.words(),
        )
        self._segment += 1
        return part
