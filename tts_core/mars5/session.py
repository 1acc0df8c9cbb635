"""MARS5's running batch: the autoregressive network of all requests in one step, each in its own row.

Diffusions run a timestep a step, as many in one call as tts_core.mars5.together allows, those that began
first before the others. Each is at its own timestep; none waits for another.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from tts_core.errors import ResourceError, UsageError
from tts_core.mars5.engine import Mars5Engine
from tts_core.mars5.memory import Mars5Job, check_running, estimate, places_that_fit
from tts_core.mars5.request import STAGES, Mars5Request
from tts_core.mars5.rows import Mars5Joining
from tts_core.mars5.sequence import CodecSequence
from tts_core.mars5.speaking import Mars5Speaking, launch_sounds
from tts_core.mars5.together import Diffusions
from tts_core.nn.beside import Pending
from tts_core.nn.guard import NotFiniteError
from tts_core.results import Meter
from tts_core.serving.session import Event, Part
from tts_core.serving.slot_session import Member, SlotSession
from tts_core.speaking.windows import Sounding
from tts_core.speech.report import StageReport


@dataclass(eq=False)
class _Mars5Member(Member):
    """A request with the ids of its piece. begun: seconds, of the stage."""

    speaking: Mars5Speaking
    sequence: CodecSequence
    begun: float = 0.0

    def count(self, stage: str) -> None:
        """Add the seconds since the stage began, and begin the next one."""
        now = time.perf_counter()
        self.speaking.meter.stage_seconds[stage] += now - self.begun
        self.begun = now


class Mars5Session(SlotSession[_Mars5Member]):
    """A running batch of at most `places` requests. Raises ResourceError for too little memory.

    rehearsal: builds a short request.
    job: bounds each request that will join; None for any of at most MAX_LEN ids. A job alone in its batch was
    checked by the caller.
    sound: False for codes alone; a request's parts are then without samples.
    report: takes the stages and steps of all requests.
    meter: of a session's only request, if it was encoded before.
    """

    def __init__(
        self,
        engine: Mars5Engine,
        places: int,
        rehearsal: Callable[[], Mars5Request],
        *,
        job: Mars5Job | None = None,
        sound: bool = True,
        report: StageReport | None = None,
        meter: Meter | None = None,
    ):
        self.engine, self._rehearsal = engine, rehearsal
        self.report, self._has_sound, self._meter = report or StageReport(), sound, meter
        host, longest = engine.host, job or Mars5Job(prompt_ids=1, frames=1)
        self.machine = host.machine()  # as the batch began
        if job is None or places > 1:
            places = places_that_fit(engine.configs, replace(longest, batch=places), self.machine)
        self.room = longest.max_len
        sounding = Sounding(
            host,
            self._sounds,
            launch=self._launch if sound and host.overlaps else None,
            owner=lambda drawn: drawn[0],
            is_wanted=lambda drawn: drawn[0].key in self.members,
        )
        super().__init__(engine.slots(places, self.room), places, host, sounding)
        self.diffusions: Diffusions[_Mars5Member] = Diffusions(engine)

    @property
    def promised(self) -> int:
        """Count requests whose diffusions share a call together: they reach their peaks at once."""
        return max(super().promised, self.diffusions.promised)

    def rehearsal(self) -> Mars5Request:
        return self._rehearsal()

    def needed(self, request: Mars5Request) -> int:
        """Estimate the largest stage, besides a cache that is kept."""
        return self._bytes(request.job())

    def begin(self, request: Mars5Request, member: Member) -> _Mars5Member:
        """Encode the reference, unless it was before, and let the first piece take a slot."""
        if request.options.max_len > self.room:
            raise UsageError(
                f"generate_max_len_override: {request.options.max_len} ids; a running batch keeps "
                f"{self.room} of each request, lower it"
            )
        meter = self._meter or Meter(self.engine.vocoder_config.sample_rate, STAGES)
        with meter.stage("codec"):
            request = request.encoded(self.engine.encode, self.engine.vocabulary)
        speaking = Mars5Speaking(request, meter, self.engine)
        one = _Mars5Member(**vars(member), speaking=speaking, sequence=speaking.sequence())
        self._say(one)
        return one

    def step(self) -> list[Event]:
        """Run a step of the ids, and a timestep of the diffusions whose turn it is.

        Raises CancelledError between ids or timesteps, once the report's caller has set `cancel`.
        """
        events: list[Event] = []
        draws = self.turns.draws()
        for place in range(max((len(ids) for _, ids in draws), default=0)):
            going = [(one, int(ids[place])) for one, ids in draws if self._draws_ids(one)]
            if going:
                self.report.check()
            for one, drawn in going:
                events += self.attempt(one, partial(self._extend, one, drawn))
        return [*events, *self._diffuse()]

    def leave(self, key: int) -> None:
        one = self.members.get(key)
        if one is not None:
            self.diffusions.drop(one)
        super().leave(key)

    def _say(self, one: _Mars5Member) -> None:
        """Begin the piece under way."""
        one.sequence, one.begun = one.speaking.sequence(), time.perf_counter()
        request, piece = one.speaking.request, one.speaking.piece
        assert request.voice.codes is not None, "the reference is encoded first"
        self.report.tell("AR", round(piece.seconds * request.frame_rate))
        self.turns.begin(one, Mars5Joining(piece.prompt, request.voice.codes, request.options, piece.noise))

    def _draws_ids(self, one: _Mars5Member) -> bool:
        return one.key in self.members and not one.sequence.done

    def _extend(self, one: _Mars5Member, drawn: int) -> None:
        """Take an id that a step drew; after the last one, let the diffusion wait for its turn."""
        sequence, speaking = one.sequence, one.speaking
        if drawn < 0:
            raise NotFiniteError(None, self.host.dtype, text=1, row=len(sequence.generated))
        sequence.accept(drawn)
        if not sequence.done:
            return
        self.turns.end(one)
        one.count("AR")
        speaking.hear(sequence)
        self.report.tell("NAR", speaking.request.diffusion.timesteps)
        prompt_ids = len(speaking.piece.prompt.tokens)
        job = speaking.request.job_of(prompt_ids, speaking.new_frames(sequence))
        if self.places == 1:
            check_running(self.engine.configs, job, self.host.machine())
        else:
            self.check_memory(self._bytes(job))
        self.diffusions.add(one, job, partial(speaking.begin, sequence))

    def _diffuse(self) -> list[Event]:
        """Run a timestep of the diffusions whose turn it is, and deliver the pieces that it ends."""
        events: list[Event] = []
        if self.diffusions.queue:
            self.report.check()
        drawn: list[tuple[_Mars5Member, np.ndarray]] = []
        for one, run in self.diffusions.step():
            if isinstance(run, ResourceError):
                events.append(self.fail(one, run))
                continue
            frames = one.speaking.new_frames(one.sequence)
            events += self.attempt(
                one, lambda one=one, run=run, frames=frames: drawn.append((one, run.result()[:, -frames:]))
            )
        for one, _ in drawn:
            one.count("NAR")
        if drawn:
            self.report.tell("vocoder")
            self.sounding.add(drawn)
        return [*events, *self._deliver()]

    def _deliver(self) -> list[Event]:
        """Give out the pieces whose codes are decoded, and begin each request's next one."""
        is_idle = not self.turns.running and not self.diffusions.queue
        return self.give_out(self.sounding.ended(wait=is_idle), self._give)

    def _give(self, one: _Mars5Member, codes: np.ndarray, sound: np.ndarray) -> list[Event]:
        one.count("vocoder")
        result = one.speaking.deliver(codes, sound, peak_bytes=self.host.peak_bytes())
        self.report.add(result, "speech")
        if not one.speaking.done:
            return [Part(one.key, result), *self.attempt(one, partial(self._say, one))]
        self.leave(one.key)
        return [Part(one.key, result)]

    def _launch(self, drawn: Sequence[tuple[_Mars5Member, np.ndarray]]) -> Pending[list[np.ndarray]]:
        limits = [one.speaking.request.options.trim_db for one, _ in drawn]
        return launch_sounds(self.engine, [codes for _, codes in drawn], limits)

    def _sounds(self, drawn: Sequence[tuple[_Mars5Member, np.ndarray]]) -> list[np.ndarray]:
        if not self._has_sound:
            return [np.zeros(0, np.float32) for _ in drawn]
        return self._launch(drawn).take()

    def _bytes(self, job: Mars5Job) -> int:
        planned = estimate(self.engine.configs, job, self.machine)
        return planned.running if self.places == 1 else planned.running_beside("cache")
