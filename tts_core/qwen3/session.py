"""Qwen3-TTS's running batch: a frame of all requests in one step, each with its own rows and codec.

A request speaks its pieces in order; the next one takes a slot when the one before has left it. Where the
device can, windows are decoded beside steps.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from tts_core.codecs.policy import CodecPolicy
from tts_core.errors import UsageError
from tts_core.memory.fits import check_places
from tts_core.memory.fits import places as fitting
from tts_core.qwen3.engine import Qwen3Engine
from tts_core.qwen3.memory import FIXED, Qwen3Job, estimate
from tts_core.qwen3.request import Qwen3Facts, Qwen3Request, rehearsal
from tts_core.qwen3.rows import WAITED
from tts_core.qwen3.speaking import Qwen3Speaking
from tts_core.serving.session import Event
from tts_core.serving.slot_session import Member
from tts_core.speech.fed_session import FedSession

SERVED = 8192  # positions of a request of unknown length, where memory is taken at once


class Qwen3Session(FedSession[Qwen3Speaking]):
    """A running batch of at most `places` requests.

    policy: the codec's windows; None decodes each piece as a whole, as the original does.
    job: bounds each request that will join; None for any.
    sound: False for codes alone, without samples.
    Raises ResourceError for too little memory.
    """

    def __init__(
        self,
        engine: Qwen3Engine,
        facts: Qwen3Facts,
        places: int,
        *,
        policy: CodecPolicy | None,
        job: Qwen3Job | None = None,
        sound: bool = True,
    ):
        self.engine, self.facts = engine, facts
        self.machine = engine.host.machine(engine.policy)  # as the batch began
        self.room = facts.config.max_positions
        check_places(places)
        if engine.host.backend in FIXED:
            self.room = min(self.room, SERVED if job is None else job.positions + 1)
            longest = job or Qwen3Job(frames=self.room // 2, prompt=self.room // 2)

            def needed(texts: int) -> int:
                return estimate(engine.configs, replace(longest, texts=texts), self.machine).running

            places = fitting(places, needed, self.machine)
        self._paused: list[Qwen3Speaking] = []  # between two pieces, or before the first of text that goes on
        self.slots = self.engine.slots(places, self.room)
        super().__init__(engine, self.slots, places, policy=policy, has_sound=sound)

    @property
    def waiting(self) -> bool:
        """True if all text that has come is spoken."""
        return self.is_idle and not (self.turns.has_launched or self.sounding.is_busy)

    @property
    def is_idle(self) -> bool:
        return not (self._draws() or any(one.can_begin for one in self._paused))

    def _draws(self) -> bool:
        """Return True if a text in a slot does not wait for more of it."""
        return len(self.slots.plan.waiting) < len(self.slots.plan.texts)

    def rehearsal(self) -> Qwen3Request:
        return rehearsal(self.facts)

    def needed(self, request: Qwen3Request) -> int:
        """Estimate a request's bytes: all of it where caches grow, else besides them."""
        found = estimate(self.engine.configs, request.job(), self.machine)
        return found.running_beside("cache") if self.host.backend in FIXED else found.running

    def fits(self, request: Qwen3Request, *, promised: int = 0) -> bool:
        """Decide for a batch in which requests between two pieces keep their places."""
        longest = request.job().positions
        if longest > self.room:
            raise UsageError(
                f"text: {longest} positions with its speech are more than the {self.room} of this batch; "
                "give shorter texts, or a smaller max_seconds"
            )
        return super().fits(request, promised=promised)

    def begin(self, request: Qwen3Request, member: Member) -> Qwen3Speaking:
        """Encode a request's recording, and let it take a slot."""
        one = Qwen3Speaking(member, request, self.engine, policy=self.policy, has_sound=self.has_sound)
        if request.is_open:
            one.hear(request.text)
        self._say(one)
        return one

    def step(self) -> list[Event]:
        """Run a frame of every request, and the windows that they complete."""
        events: list[Event] = []
        paused, self._paused = self._paused, []
        for one in paused:
            if one.key in self.members:
                events += self.attempt(one, partial(self._say, one))
        for one, drawn in self.turns.draws(can_launch=self._draws):
            if one.key in self.members:
                events += self.attempt(one, partial(self._accept, one, drawn))
        return [*events, *self.heard()]

    def close(self) -> None:
        super().close()
        del self.slots

    def leave(self, key: int) -> None:
        super().leave(key)
        self._paused = [one for one in self._paused if one.key != key]

    def _say(self, one: Qwen3Speaking) -> None:
        """Let the piece under way take a slot, once its text has come."""
        joining = one.joining()
        if joining is None:
            self._paused.append(one)
        else:
            self.turns.begin(one, joining)

    def hear(self, one: Qwen3Speaking, text: str | None) -> None:
        one.hear(text)
        slot = self.turns.slot(one)
        news = None if slot is None or one.live is None else one.live.news()
        if slot is not None and news is not None:
            ids, more = news
            self.slots.feed(slot, ids, more=more)
        self._go_on(one)

    def _accept(self, one: Qwen3Speaking, drawn: np.ndarray) -> None:
        """Take the frames of a request's steps, (steps, Q), as far as its speech goes."""
        for codes in drawn:
            if codes[0] == WAITED:
                continue
            if codes[0] < 0:
                known = np.array(one.drawn, np.int32).reshape(-1, drawn.shape[1]).T
                joining = one.joining()
                assert joining is not None, "its piece has begun"
                self.fail_after(one, self.engine.fault(joining, known))
                return
            one.take(codes)
            if one.is_over:
                self.turns.end(one)
                break
        self._go_on(one)

    def _go_on(self, one: Qwen3Speaking) -> None:
        """Ask for the windows that are known; after the last one of a piece the next piece begins."""
        self.ask(one)
        if one.is_done:
            one.next()
            self._paused.append(one)
