"""MetaVoice's running batch: the first stage of all requests in one step, each with its own rows.

A request speaks its pieces in order. Pieces that end at the same step are decoded together; a diffusion's
bands are then loaded once for all, so a batch that nobody hears before its end begins diffusions only when no
first stage runs. The second stage runs piece by piece: it is one pass of a small network, whose random
numbers take the host longer than a GPU takes for the pass (docs/measured/speed.md).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from functools import partial
from weakref import WeakKeyDictionary

import numpy as np

from tts_core.errors import CancelledError
from tts_core.metavoice.config import END_OF_AUDIO, FIRST_STAGE_BOOKS
from tts_core.metavoice.engine import MetaVoiceEngine
from tts_core.metavoice.memory import MetaVoiceJob, estimate, places_that_fit, positions
from tts_core.metavoice.options import Decoder
from tts_core.metavoice.request import (
    FRAME_RATE,
    STAGES,
    MetaVoiceRequest,
    MetaVoiceVoice,
)
from tts_core.metavoice.rows import MetaVoiceJoining, most_rows
from tts_core.metavoice.speaking import MetaVoiceSpeaking
from tts_core.nn.beside import Pending, Then
from tts_core.nn.calls import apart
from tts_core.results import Meter
from tts_core.serving.session import Event, Part
from tts_core.serving.slot_session import Member, SlotSession
from tts_core.speaking.windows import Sounding
from tts_core.speech.report import StageReport


@dataclass(eq=False)
class _MetaVoiceMember(Member):
    """A request with its speaker's vector, and the first stage's ids of its piece. begun: seconds.

    is_between: one piece has ended, and the next one will take its rows again.
    """

    speaking: MetaVoiceSpeaking
    vector: np.ndarray
    ids: list[int] = field(default_factory=list)
    begun: float = field(default_factory=time.perf_counter)
    is_between: bool = False


_Ended = tuple[_MetaVoiceMember, np.ndarray]  # a piece whose codes (Q, F) are known


class MetaVoiceSession(SlotSession[_MetaVoiceMember]):
    """A running batch of at most `places` requests.

    rehearsal: builds a short request.
    job: bounds each request of a batch that nobody hears before its end, where it is known that `places` of
    them fit; None for any request, on as many places as fit. Raises ResourceError for too little memory.
    report: takes the stages and steps of all requests.
    sound: False for codes alone, without samples.
    """

    def __init__(
        self,
        engine: MetaVoiceEngine,
        places: int,
        rehearsal: Callable[[], MetaVoiceRequest],
        *,
        job: MetaVoiceJob | None = None,
        report: StageReport | None = None,
        sound: bool = True,
    ):
        self.engine, self.facts, self._rehearsal = engine, engine.facts, rehearsal
        self.report, self._has_sound = report or StageReport(), sound
        self._begins = False  # True before steps that no report precedes
        self._waits = job is not None  # with diffusions
        self._waiting: list[_Ended] = []  # for the first stages of others
        self._paused: list[
            _MetaVoiceMember
        ] = []  # between two pieces; the next one begins with the next step
        self._vectors = WeakKeyDictionary[MetaVoiceVoice, np.ndarray]()
        host, first = engine.host, engine.facts.first
        self.machine = host.machine()  # as the batch began
        if job is None:
            places = places_that_fit(engine.configs, places, self.machine)
            self.slots = engine.slots(places, most_rows(places), first.max_position_embeddings - 1)
        else:
            self.slots = engine.slots(places, places * job.rows, positions(first, job))
        sounding = Sounding(
            host,
            self._sounds,
            launch=self._launch if sound and host.overlaps else None,
            split=_by_decoder,
            owner=lambda ended: ended[0],
            is_wanted=lambda ended: ended[0].key in self.members,
        )
        super().__init__(self.slots, places, host, sounding)
        host.reset_peak()

    def rehearsal(self) -> MetaVoiceRequest:
        return self._rehearsal()

    def needed(self, request: MetaVoiceRequest) -> int:
        """Estimate the largest stage, besides the cache."""
        return estimate(self.engine.configs, request.job(), self.machine).running_beside("cache")

    def fits(self, request: MetaVoiceRequest, *, promised: int = 0) -> bool:
        """Return True if its rows fit, too. Guidance on speaker and text takes a row more; requests between
        two pieces keep theirs.
        """
        fits = super().fits(request, promised=promised)
        is_kept = any(one.is_between for one in self.members.values())
        return fits and not is_kept and self.slots.fits(request.sampling)

    def begin(self, request: MetaVoiceRequest, member: Member) -> _MetaVoiceMember:
        """Encode the voice, and let the request take its rows."""
        meter = Meter(self.facts.vocoder.sample_rate, STAGES)
        if request.voice not in self._vectors:
            with self._stage("speaker", meter):
                self._vectors[request.voice] = request.voice.encoded(self.engine.speaker)
        vector = self._vectors[request.voice]
        one = _MetaVoiceMember(**vars(member), speaking=MetaVoiceSpeaking(request, meter), vector=vector)
        self._say(one)
        return one

    def step(self) -> list[Event]:
        events: list[Event] = []
        ended: list[_MetaVoiceMember] = []
        paused, self._paused = self._paused, []
        for one in paused:
            if one.key in self.members:
                events += self.attempt(one, partial(self._say, one))
        if self._begins:
            self.report.tell("first stage", max(map(_steps, self.members.values()), default=None))
            self._begins = False
        for _ in range(self.slots.steps):
            self.report.check()
        for one, drawn in self.turns.draws():
            events += self.attempt(one, partial(self._accept, one, drawn, ended))
        if ended:
            events += self._hear(ended)
            self._begins = True  # others go on
        return [*events, *self._deliver()]

    def _say(self, one: _MetaVoiceMember) -> None:
        """Let the first stage begin the piece under way."""
        one.ids, one.begun, one.is_between, self._begins = [], time.perf_counter(), False, True
        piece = one.speaking.piece
        self.turns.begin(
            one, MetaVoiceJoining(piece.first, one.vector, one.speaking.request.sampling, piece.noise)
        )

    def _accept(self, one: _MetaVoiceMember, drawn: np.ndarray, ended: list[_MetaVoiceMember]) -> None:
        """Take the ids of a request's steps, (steps,). A piece that ends with them is added to `ended`."""
        ids = drawn.tolist()[: one.speaking.limit - len(one.ids)]
        if END_OF_AUDIO in ids:
            ids = ids[: ids.index(END_OF_AUDIO) + 1]
        if min(ids) < 0:
            known = np.array(one.ids + ids[: ids.index(-1)], np.int32)
            sequence = np.concatenate([one.speaking.piece.first, known])
            raise self.engine.fault(sequence, one.vector, one.speaking.request.sampling)
        one.ids += ids
        if ids[-1] == END_OF_AUDIO or len(one.ids) == one.speaking.limit:
            self.turns.end(one)
            one.is_between = len(one.speaking.request.pieces) > 1
            ended.append(one)

    def _hear(self, speaking: Sequence[_MetaVoiceMember]) -> list[Event]:
        """Take pieces that ended through the second stage to the decoder."""
        events: list[Event] = []
        for one in speaking:
            one.speaking.meter.stage_seconds["first stage"] += time.perf_counter() - one.begun
            events += self.attempt(one, lambda one=one: self._waiting.append(self._heard(one)))
        return events

    def _deliver(self) -> list[Event]:
        """Let pieces be decoded, and give out those that are."""
        is_slow = any(one.speaking.request.decoder == "mbd" for one, _ in self._waiting)
        if not (self._waits and is_slow and self.turns.running):
            self.sounding.add(self._waiting)
            self._waiting = []
        is_idle = not self.turns.running and not self._paused
        return self.give_out(self.sounding.ended(wait=is_idle), self._give)

    def _give(self, one: _MetaVoiceMember, codes: np.ndarray, wave: np.ndarray) -> list[Event]:
        result = one.speaking.deliver(codes, wave, peak_bytes=self.host.peak_bytes())
        if self._has_sound:
            self.report.add(result, STAGES[-1])
        if one.speaking.done:
            self.leave(one.key)
        else:
            self._paused.append(one)
        return [Part(one.key, result)]

    def _heard(self, one: _MetaVoiceMember) -> _Ended:
        """Take a piece that ended through the second stage."""
        piece = one.speaking.piece
        said = one.speaking.hear(np.concatenate([piece.first, np.array(one.ids, np.int32)]))
        with self._stage("second stage", one.speaking.meter):
            codes = apart(self.host, partial(self.engine.fill, piece, said.codes, one.vector))
        return one, codes

    def _launch(self, heard: Sequence[_Ended]) -> Pending[list[np.ndarray]] | None:
        begun = time.perf_counter()
        launched = self.engine.launch([codes for _, codes in heard], _decoder(heard))
        if launched is None:
            return None
        self.report.tell("decoder")

        def timed(waves: list[np.ndarray]) -> list[np.ndarray]:
            for one, _ in heard:
                one.speaking.meter.stage_seconds["decoder"] += time.perf_counter() - begun
            return waves

        return Then(launched, timed)

    def _sounds(self, heard: Sequence[_Ended]) -> list[np.ndarray]:
        """Decode pieces. Raises CancelledError once all their requests are cancelled."""
        if not self._has_sound:
            return [np.zeros(0, np.float32) for _ in heard]

        def check() -> None:
            self.report.check()
            if all(one.cancel.is_set() for one, _ in heard):
                raise CancelledError("generation: cancelled")

        self.report.tell("decoder")
        with ExitStack() as stages:
            for one, _ in heard:
                stages.enter_context(one.speaking.meter.stage("decoder"))
            return self.engine.decode(
                [codes for _, codes in heard],
                [one.speaking.piece.noise for one, _ in heard],
                _decoder(heard),
                check=check,
            )

    def _stage(self, name: str, meter: Meter) -> AbstractContextManager[None]:
        """Report a stage of one request and time it."""
        self.report.tell(name)
        return meter.stage(name)


def _decoder(heard: Sequence[_Ended]) -> Decoder:
    """The decoder of pieces that share a launch."""
    return heard[0][0].speaking.request.decoder


def _by_decoder(heard: Sequence[_Ended]) -> list[list[int]]:
    """Divide pieces into launches, each of one decoder."""
    decoders = [_decoder([each]) for each in heard]
    return [[place for place, each in enumerate(decoders) if each == one] for one in dict.fromkeys(decoders)]


def _steps(one: _MetaVoiceMember) -> int:
    """About how many ids the piece under way has."""
    return round(FIRST_STAGE_BOOKS * FRAME_RATE * one.speaking.piece.seconds)
