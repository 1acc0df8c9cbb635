"""Parrot's running batch: a word of each request a step, of text that may still arrive; words are timed."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from tts_core.audio.delivery import Delivery
from tts_core.errors import SpeechError
from tts_core.parrot.options import ParrotOptions
from tts_core.parrot.request import ParrotRequest
from tts_core.results import Meter
from tts_core.serving.session import Event, Failed, Part, Session
from tts_core.text.captions import Word

if TYPE_CHECKING:
    from tts_core.parrot.pipeline import ParrotPipeline


class _ParrotMember:
    """One request: the words that it still has to say."""

    def __init__(self, request: ParrotRequest, sample_rate: int, *, more: bool):
        self.request, self.more, self.said = request, more, 0
        self.words = list(request.pieces)
        self.delivery = Delivery(request.pacing, sample_rate, more=more)
        self.meter = Meter(sample_rate)

    @property
    def ready(self) -> bool:
        """A word is known, and whether another follows."""
        return len(self.words) > 1 or (len(self.words) == 1 and not self.more)


class ParrotSession(Session):
    """A session of either side."""

    def __init__(self, pipeline: ParrotPipeline, places: int):
        self.pipeline, self._places = pipeline, places
        self._joined = 0
        self._speeches: dict[int, _ParrotMember] = {}

    @property
    def places(self) -> int:
        """Requests that it can speak at once."""
        return self._places

    @property
    def promised(self) -> int:
        """Nothing: a word is checked before it is spoken."""
        return 0

    @property
    def running(self) -> int:
        """Requests that have joined."""
        return len(self._speeches)

    @property
    def waiting(self) -> bool:
        """No request has a word to say."""
        return not any(one.ready for one in self._speeches.values())

    def fits(self, request: Any, *, promised: int = 0) -> bool:
        """A place is free, and there is memory for a word."""
        self.pipeline.check_memory(request)
        return self.running < self.places

    def join(self, request: Any, *, more: bool = False, cancel: threading.Event | None = None) -> int:
        """Begin with the next step."""
        self._joined += 1
        self._speeches[self._joined] = _ParrotMember(request, self.pipeline.sample_rate, more=more)
        return self._joined

    def feed(self, key: int, text: str) -> None:
        """Append words."""
        speech = self._speeches[key]
        further = self.pipeline.request(text, speech.request.options)
        speech.words += further.pieces
        speech.delivery.extend(further.pacing)

    def end(self, key: int) -> None:
        """No more words come."""
        if key in self._speeches:
            self._speeches[key].more = False

    def step(self) -> list[Event]:
        """Say a word of every request that has one."""
        events: list[Event] = []
        for key, speech in [*self._speeches.items()]:
            if not speech.ready:
                continue
            try:
                events.append(self._say(key, speech))
            except SpeechError as error:
                self.leave(key)
                events.append(Failed(key, error))
        return events

    def leave(self, key: int) -> None:
        """Forget a request."""
        self._speeches.pop(key, None)

    def rehearsal(self) -> ParrotRequest:
        """A word."""
        return self.pipeline.request("Polly", ParrotOptions())

    def close(self) -> None:
        """Forget all requests."""
        self._speeches.clear()

    def _say(self, key: int, speech: _ParrotMember) -> Part:
        word, seed = speech.words.pop(0), speech.request.options.seed or 0
        last, delivery = not speech.words, speech.delivery
        codes = self.pipeline.engine.codes(speech.request.features(word), seed)
        sound = self.pipeline.engine.decode(codes)
        delivery.time([Word(word, 0, len(sound) / self.pipeline.sample_rate)])
        audio = delivery.add(sound, last_of_piece=not last)
        if last:
            audio = np.concatenate([audio, delivery.finish()])
            self.leave(key)
        speech.said += 1
        speech.meter.add(len(audio))
        result = speech.meter.result(
            audio,
            codes,
            seed=seed,
            token_count=speech.said,
            peak_bytes=self.pipeline.engine.host.peak_bytes(),
            segment_idx=speech.said - 1,
            finish_reason="stop" if last else None,
            cues=delivery.cues(),
            words=delivery.words(),
        )
        return Part(key, result)
