"""Dia2's running batch: the steps of all requests together, each with its own state machine and codec.

The host is needed between a step's action and its codes: the next step acts before the codes of the last one
are read, so the device has work meanwhile. Where it can, it decodes windows beside the steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tts_core.codecs.policy import CodecPolicy
from tts_core.config import config_of
from tts_core.dia2.config import Dia2Config
from tts_core.dia2.engine import Dia2Engine
from tts_core.dia2.memory import FIXED, Dia2Job, cached_rows, check_running, estimate
from tts_core.dia2.recordings import longest_prefix
from tts_core.dia2.request import Dia2Request, longest_frames
from tts_core.dia2.speaking import Dia2Speaking
from tts_core.errors import own_error
from tts_core.memory.fits import check_places, largest
from tts_core.memory.terms import Estimate
from tts_core.serving.session import Event
from tts_core.serving.slot_session import Member
from tts_core.speaking.windows import MemberWindow
from tts_core.speech.fed_session import NOTHING, FedSession


@dataclass(frozen=True, eq=False)
class _Drawn:
    """A step whose codes are not read yet. acted, actions: by slot."""

    codes: Any
    acted: dict[int, Dia2Speaking]
    actions: dict[int, int]


class Dia2Session(FedSession[Dia2Speaking]):
    """A running batch of at most `places` requests.

    Raises ResourceError for too little memory.

    rehearsal: builds a short request.
    policy: the codec's windows.
    job: bounds each request that will join; None for any.
    sound: False for codes alone, without samples.
    """

    def __init__(
        self,
        engine: Dia2Engine,
        places: int,
        rehearsal: Callable[[], Dia2Request],
        *,
        policy: CodecPolicy,
        job: Dia2Job | None = None,
        sound: bool = True,
    ):
        self.engine, self._rehearsal = engine, rehearsal
        config = config_of(engine.configs, "dia2", Dia2Config)
        longest = job or Dia2Job(longest_frames(config), longest_prefix(config))
        self._is_fixed = engine.host.backend in FIXED
        self._machine = engine.host.machine(policy)
        places = self._fitting(places, longest)
        self.slots = engine.slots(places, cached_rows(config, longest), guided=longest.guided)
        self._drawn: _Drawn | None = None
        super().__init__(engine, self.slots, places, policy=policy, has_sound=sound)
        self._machine = engine.host.machine(policy)

    @property
    def waiting(self) -> bool:
        return self.is_idle and not self._acting() and not self.sounding.is_busy

    @property
    def is_idle(self) -> bool:
        return self._drawn is None

    @property
    def promised(self) -> int:
        return self._takes([one.request.job() for one in self.members.values()]) if self.members else 0

    def needed(self, request: Dia2Request) -> int:
        """Count nothing by itself; `fits` counts the requests together."""
        return 0

    def rehearsal(self) -> Dia2Request:
        return self._rehearsal()

    def fits(self, request: Dia2Request, *, promised: int = 0) -> bool:
        if self._is_fixed:
            return self.running < self.places
        if not self.members:
            self._machine = self.engine.host.machine(self.policy)
            check_memory(self.engine, request.job())
        jobs = [*(one.request.job() for one in self.members.values()), request.job()]
        return self._machine.fits(self._takes(jobs) + promised) and self.running < self.places

    def begin(self, request: Dia2Request, member: Member) -> Dia2Speaking:
        """Encode the recordings, and let the first piece take a slot, once its first words have come."""
        one = Dia2Speaking(member, request, self.engine, policy=self.policy, has_sound=self.has_sound)
        one.hear(request.text)
        self._say(one)
        return one

    def hear(self, one: Dia2Speaking, text: str | None) -> None:
        if not one.is_over:
            one.hear(text)
            self._say(one)

    def step(self) -> list[Event]:
        """Run a step of every request whose words have come; then the codes of the step before,
        and the windows that they complete.
        """
        before, self._drawn = self._drawn, self._act()
        if before is not None:
            codes = self.slots.read(before.codes)
            for slot, one in before.acted.items():
                if one.key in self.members and not one.is_over:
                    self._attempt(one, partial(self._accept, one, codes[slot], before.actions[slot]))
        return self.heard()

    def close(self) -> None:
        super().close()
        self._drawn = None
        del self.slots

    def _acting(self) -> dict[int, Dia2Speaking]:
        """Find the requests whose next step can run, by slot."""
        slots = {self.turns.slot(one): one for one in self.members.values()}
        return {
            slot: one
            for slot, one in slots.items()
            if slot is not None and not one.is_over and one.run.has_step and not one.run.waits
        }

    def _act(self) -> _Drawn | None:
        """Run the next step of all requests that have one, up to their codes."""
        acting = self._acting()
        if not acting:
            return None
        actions = self.slots.act(self._each(acting, lambda slot, one: one.run.tokens()))
        texts = self._each(acting, lambda slot, one: one.act(max(actions[slot], 0)))
        return _Drawn(self.slots.draw(texts), {slot: acting[slot] for slot in texts}, actions)

    def _each(
        self, acting: dict[int, Dia2Speaking], work: Callable[[int, Dia2Speaking], Any]
    ) -> dict[int, Any]:
        """Do work of each request, by slot; one that cannot go on is left out."""
        found: dict[int, Any] = {}

        def keep(slot: int, one: Dia2Speaking) -> None:
            found[slot] = work(slot, one)

        for slot, one in acting.items():
            if not one.is_over:
                self._attempt(one, partial(keep, slot, one))
        return found

    def _attempt(self, one: Dia2Speaking, work: Callable[[], None]) -> None:
        """Do work of one request only; if it cannot go on, let it fail after what was spoken.

        It keeps its slot until then, for a step may be under way.
        """
        try:
            work()
        except Exception as error:
            one.is_over = True
            self.sounding.fail(MemberWindow(one, NOTHING), own_error(error))

    def _accept(self, one: Dia2Speaking, codes: Any, action: int) -> None:
        """Take the codes of a request's step. Raises GenerationError if they come from NaN or infinity."""
        run = one.run
        if action < 0 or codes.min() < 0:
            raise self.engine.fault(*run.history())
        run.accept(codes)
        if run.is_done:
            self.turns.end(one)
        self.ask(one)
        if run.is_done and one.finish_reason is not None:
            one.is_over = True
        elif run.is_done:
            one.next()
            self._say(one)

    def _say(self, one: Dia2Speaking) -> None:
        """Let a piece take a slot, once its first words have come."""
        if self.turns.slot(one) is None and not one.run.waits:
            self.turns.begin(one, one.joining())

    def _fitting(self, places: int, longest: Dia2Job) -> int:
        """Limit the places to those whose memory can be allocated at once, where it is. Raises ResourceError
        if not even one can.
        """
        check_places(places)
        if not self._is_fixed or self._machine.free is None:
            return places
        check_memory(self.engine, longest)
        return largest(places, lambda texts: self._machine.fits(self._estimate([longest] * texts).running))

    def _takes(self, jobs: Sequence[Dia2Job]) -> int:
        """Bound the bytes that jobs may still allocate."""
        found = self._estimate(jobs)
        return found.running - (found["cache"].bytes if self._is_fixed else 0)

    def _estimate(self, jobs: Sequence[Dia2Job]) -> Estimate:
        return estimate(self.engine.configs, Dia2Job.together(jobs), self._machine)


def check_memory(engine: Dia2Engine, job: Dia2Job) -> None:
    """Raise ResourceError, with what would fit, unless a request fits in the free memory."""
    check_running(engine.configs, job, engine.host.machine(engine.policy))
