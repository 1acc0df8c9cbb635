"""MARS5's running batch: the autoregressive network of all requests in one step, each in its own row.

Diffusions run one after the other, a timestep a step, each in calls of its own: a call for several rounds
differently, and a request's codes would depend on its neighbors. Measured on three of 300 frames with PyTorch
on a CPU in float32: 90 % of the logits change, by up to 3e-6, and with them the class of one cell in a few
hundred thousand.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tts_core.errors import SpeechError, UsageError
from tts_core.mars5.memory import Mars5Job, estimate, places_that_fit
from tts_core.mars5.options import MAX_LEN
from tts_core.mars5.request import STAGES, Request
from tts_core.mars5.rows import Joining
from tts_core.mars5.sequence import CodecSequence
from tts_core.mars5.speech import Speech, draw_codes, new_frames, trimmed_sound
from tts_core.nn.guard import not_finite
from tts_core.results import Meter
from tts_core.serving.session import Event, Failed, Part
from tts_core.serving.slot_session import SlotSession, Spoken

if TYPE_CHECKING:
    from tts_core.mars5.pipeline import Mars5Pipeline


@dataclass(eq=False)
class _Speaking(Spoken):
    """A request with the ids of its piece, and its diffusion once they end. begun: seconds, of the stage."""

    speech: Speech
    sequence: CodecSequence
    diffusion: Iterator[np.ndarray | None] | None = None
    begun: float = 0.0

    def count(self, stage: str) -> None:
        """Add the seconds since the stage began, and begin the next one."""
        now = time.perf_counter()
        self.speech.meter.stage_seconds[stage] += now - self.begun
        self.begun = now


class Mars5Session(SlotSession[_Speaking]):
    """A running batch of at most `places` requests. Raises ResourceError for too little memory."""

    def __init__(self, pipeline: Mars5Pipeline, places: int):
        self.pipeline, self.engine = pipeline, pipeline.engine
        host = self.engine.host
        places = places_that_fit(
            pipeline.configs, places, dtype=host.dtype, backend=host.backend, free=host.free_bytes()
        )
        super().__init__(self.engine.slots(places, MAX_LEN), places, host)

    def rehearsal(self) -> Request:
        """As in Session."""
        return self.pipeline.rehearsal()

    def needed(self, request: Request) -> int:
        """As in SlotSession: the largest stage, besides the cache."""
        return self._bytes(request.job())

    def begin(self, request: Request, spoken: Spoken) -> _Speaking:
        """As in SlotSession. The reference is encoded here."""
        if request.options.max_len > MAX_LEN:
            raise UsageError(
                f"generate_max_len_override: {request.options.max_len} ids; a running batch keeps {MAX_LEN} "
                "of each request, lower it"
            )
        meter = Meter(self.pipeline.sample_rate, STAGES)
        with meter.stage("codec"):
            request = request.encoded(self.engine.encode, self.engine.vocabulary)
        speech = Speech(request, meter, self.engine.vocabulary)
        one = _Speaking(**vars(spoken), speech=speech, sequence=speech.sequence())
        self._say(one)
        return one

    def step(self) -> list[Event]:
        """As in Session: a step of the ids, and a timestep of the diffusion that began first."""
        events: list[Event] = []
        for one, drawn in self.turns.draws():
            try:
                self._extend(one, drawn)
            except SpeechError as error:
                events.append(self._fail(one, error))
        diffusing = [one for one in self.spoken.values() if one.diffusion is not None]
        if diffusing:
            events += self._diffuse(min(diffusing, key=lambda one: one.begun))
        return events

    def _say(self, one: _Speaking) -> None:
        """Begin the piece under way."""
        one.sequence, one.begun = one.speech.sequence(), time.perf_counter()
        request, piece = one.speech.request, one.speech.piece
        assert request.voice.codes is not None, "the reference is encoded first"
        self.turns.begin(one, Joining(piece.prompt, request.voice.codes, request.options, piece.noise))

    def _extend(self, one: _Speaking, drawn: np.ndarray) -> None:
        """Take the ids that a step drew; once they end, begin the diffusion."""
        sequence, speech = one.sequence, one.speech
        for place in drawn.tolist():
            if place < 0:
                raise not_finite(None, self.host.dtype, text=1, row=len(sequence.generated))
            sequence.accept(place)
            if sequence.done:
                break
        if not sequence.done:
            return
        self.turns.end(one)
        one.count("AR")
        speech.hear(sequence)
        piece, frames = speech.piece, new_frames(speech.request, sequence)
        self.check_memory(self._bytes(speech.request.job_of(len(piece.prompt.tokens), frames)))
        one.diffusion = draw_codes(self.engine, speech.request, piece, sequence)

    def _diffuse(self, one: _Speaking) -> list[Event]:
        """Run a timestep; after the last one, deliver the piece and begin the next."""
        assert one.diffusion is not None
        speech = one.speech
        try:
            codes = next(one.diffusion)
        except SpeechError as error:
            return [self._fail(one, error)]
        if codes is None:
            return []
        one.diffusion = None
        one.count("NAR")
        sound = trimmed_sound(self.engine, codes, speech.request.options.trim_db)
        one.count("vocoder")
        result = speech.deliver(codes, sound, peak_bytes=self.host.peak_bytes())
        if speech.done:
            self.leave(one.key)
        else:
            self._say(one)
        return [Part(one.key, result)]

    def _bytes(self, job: Mars5Job) -> int:
        host = self.host
        planned = estimate(self.pipeline.configs, job, dtype=host.dtype, backend=host.backend)
        return planned.running_beside("cache")

    def _fail(self, one: _Speaking, error: Exception) -> Failed:
        self.leave(one.key)
        return Failed(one.key, error)
