"""Dia2's running batch: the steps of all requests together, each with its own state machine and codec.

The host is needed between a step's action and its codes: the next step acts before the codes of the last one
are read, so the device has work meanwhile. Where it can, it decodes windows beside the steps.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tts_core.audio.voice_cache import VoiceCache
from tts_core.codecs.policy import CodecPolicy
from tts_core.config import config_of
from tts_core.dia2.config import Dia2Config
from tts_core.dia2.engine import Dia2Engine
from tts_core.dia2.memory import FIXED, Dia2Job, cached_rows, check_running, estimate
from tts_core.dia2.recordings import longest_prefix
from tts_core.dia2.request import Dia2Request, longest_frames
from tts_core.dia2.speaking import Dia2Speaking, Dia2Window, End
from tts_core.errors import SpeechError, comes_late, shortage
from tts_core.memory.fits import check_places, largest
from tts_core.memory.terms import Estimate
from tts_core.nn.beside import Pending, Then
from tts_core.nn.calls import apart, drop_errors
from tts_core.nn.guard import check_sound, checked
from tts_core.serving.session import Event, Failed, Part, Session
from tts_core.serving.sounding import MemberWindow, Sounding


@dataclass(eq=False)
class _Dia2Member:
    """A request that has joined.

    slot: of its piece; negative before it begins and after its last step.
    is_over: its last step has run, or failed; what was spoken is still to be given out.
    """

    key: int
    job: Dia2Job
    speaking: Dia2Speaking
    slot: int
    is_over: bool = False


_Window = MemberWindow[_Dia2Member, Dia2Window]


@dataclass(frozen=True, eq=False)
class _Drawn:
    """A step whose codes are not read yet. actions: by slot."""

    codes: Any
    acted: list[_Dia2Member]
    actions: dict[int, int]


class Dia2Session(Session):
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
        self.engine, self.policy, self._rehearsal, self._has_sound = engine, policy, rehearsal, sound
        config = config_of(engine.configs, "dia2", Dia2Config)
        longest = job or Dia2Job(longest_frames(config), longest_prefix(config))
        self._is_fixed = engine.host.backend in FIXED
        self._machine = engine.host.machine(policy)
        self._places = self._fitting(places, longest)
        self.slots = engine.slots(self.places, cached_rows(config, longest), guided=longest.guided)
        self.members: dict[int, _Dia2Member] = {}
        self._drawn: _Drawn | None = None
        beside = sound and engine.host.overlaps
        self.sounding = Sounding(
            engine.host,
            self._decode,
            launch=self._launch if beside else None,
            split=lambda asked: [[place] for place in range(len(asked))],  # each changes its codec's memory
            owner=lambda asked: asked.one,
            is_wanted=lambda asked: asked.one.key in self.members,
            most=self.places if policy.is_heard else None,
        )
        self._voices = VoiceCache()
        self._joined = 0  # requests so far
        self._machine = engine.host.machine(policy)
        engine.host.reset_peak()

    @property
    def places(self) -> int:
        return self._places

    @property
    def running(self) -> int:
        return len(self.members)

    @property
    def waiting(self) -> bool:
        return self._drawn is None and not self._acting() and not self.sounding.is_busy

    @property
    def promised(self) -> int:
        return self._takes([one.job for one in self.members.values()]) if self.members else 0

    def rehearsal(self) -> Dia2Request:
        return self._rehearsal()

    def fits(self, request: Dia2Request, *, promised: int = 0) -> bool:
        if self._is_fixed:
            return self.running < self.places
        if not self.members:
            self._machine = self.engine.host.machine(self.policy)
            check_memory(self.engine, request.job())
        jobs = [*(one.job for one in self.members.values()), request.job()]
        return self._machine.fits(self._takes(jobs) + promised) and self.running < self.places

    def join(self, request: Dia2Request, *, more: bool = False, cancel: threading.Event | None = None) -> int:
        """Encode the recordings, and let the request join."""
        asked = request.opened() if more else request
        speaking = Dia2Speaking(self.engine, asked, encode=self._encode, policy=self.policy)
        speaking.hear(request.text)
        one = _Dia2Member(self._joined + 1, asked.job(), speaking, -1)
        self._begin(one)
        self._joined = one.key
        self.members[one.key] = one
        return one.key

    def feed(self, key: int, text: str) -> None:
        self._hear(self.members[key], text)

    def end(self, key: int) -> None:
        if key in self.members:
            self._hear(self.members[key], None)

    def step(self) -> list[Event]:
        """Run a step of every request whose words have come; then the codes of the step before,
        and the windows that they complete.
        """
        before, self._drawn = self._drawn, self._act()
        if before is not None:
            codes = self.slots.read(before.codes)
            for one in before.acted:
                if one.key in self.members and not one.is_over:
                    self._attempt(one, codes[one.slot], before.actions[one.slot])
        return self._heard(self.sounding.ended(wait=self._is_due))

    def leave(self, key: int) -> None:
        one = self.members.pop(key, None)
        if one is not None:
            self.slots.leave(one.slot)

    def close(self) -> None:
        self.members.clear()
        self.sounding.close()
        self._drawn = None
        del self.slots
        drop_errors(self.engine.host)

    def _encode(self, samples: np.ndarray) -> np.ndarray:
        """Encode a recording, (L,) → (Q, P); a configured voice comes with many requests."""
        return self._voices.encoded(
            [samples], lambda recordings: apart(self.engine.host, partial(self.engine.encode, recordings[0]))
        )

    def _acting(self) -> list[_Dia2Member]:
        runs = [(one, one.speaking.run) for one in self.members.values() if not one.is_over]
        return [one for one, run in runs if run.has_step and not run.waits]

    def _act(self) -> _Drawn | None:
        """Run the next step of all requests that have one, up to their codes."""
        acting = self._acting()
        if not acting:
            return None
        actions = self.slots.act({one.slot: one.speaking.run.tokens() for one in acting})
        texts = {one.slot: one.speaking.act(max(actions[one.slot], 0)) for one in acting}
        return _Drawn(self.slots.draw(texts), acting, actions)

    def _attempt(self, one: _Dia2Member, codes: Any, action: int) -> None:
        """Take the codes of a request's step; if it cannot go on, let it fail after what was spoken."""
        try:
            self._accept(one, codes, action)
        except Exception as error:
            found = error if isinstance(error, SpeechError) else shortage(error)
            if found is None or comes_late(error):
                raise
            self._free(one)
            one.is_over = True
            self.sounding.fail(_Window(one, one.speaking.nothing()), found)

    def _accept(self, one: _Dia2Member, codes: Any, action: int) -> None:
        """Take the codes of a request's step. Raises GenerationError if they come from NaN or infinity."""
        run = one.speaking.run
        if action < 0 or codes.min() < 0:
            raise self.engine.fault(*run.history())
        run.accept(codes)
        if run.is_done:
            self._free(one)
        self.sounding.add([_Window(one, window) for window in one.speaking.windows()])
        if run.is_done and one.speaking.finish_reason is not None:
            one.is_over = True
        elif run.is_done:
            one.speaking.next()
            self._begin(one)

    def _free(self, one: _Dia2Member) -> None:
        self.slots.leave(one.slot)
        one.slot = -1

    @property
    def _is_due(self) -> bool:
        """True if nothing else runs, or the only listener waits for the first sound."""
        [*members] = self.members.values()
        alone = len(members) == 1 and self.policy.is_heard and not members[0].speaking.meter.samples
        return alone or self._drawn is None

    def _heard(self, ended: Sequence[tuple[_Window, np.ndarray | Exception]]) -> list[Event]:
        """Give out windows that are decoded."""
        events: list[Event] = []
        for asked, sound in ended:
            one, window = asked.one, asked.window
            if one.key not in self.members:
                continue  # an earlier window of it failed
            if isinstance(sound, Exception):
                self.leave(one.key)
                events.append(Failed(one.key, sound))
                continue
            events.append(Part(one.key, one.speaking.part(window, sound)))
            if isinstance(window, End) and window.finish_reason is not None:
                del self.members[one.key]
        return events

    def _launch(self, asked: Sequence[_Window]) -> Pending[list[np.ndarray | Exception]] | None:
        [each] = asked
        window, memory = each.window, each.window.memory
        if not window.codes.shape[1]:
            return None
        sound, memory.kept = self.engine.launch(window.codes, memory.kept)
        return Then(sound, lambda audio: [checked(audio)])

    def _decode(self, asked: Sequence[_Window]) -> list[np.ndarray]:
        [each] = asked
        window, memory = each.window, each.window.memory
        if not (self._has_sound and window.codes.shape[1]):
            return [np.zeros(0, np.float32)]
        audio, memory.kept = self.engine.decode(window.codes, memory.kept)
        check_sound(audio)
        return [audio]

    def _hear(self, one: _Dia2Member, text: str | None) -> None:
        if not one.is_over:
            one.speaking.hear(text)
            self._begin(one)

    def _begin(self, one: _Dia2Member) -> None:
        """Let a piece take the lowest free slot, once its first words have come."""
        if one.slot >= 0 or one.speaking.run.waits:
            return
        taken = {other.slot for other in self.members.values() if other is not one}
        one.slot = min(set(range(self.places)) - taken)
        self.slots.join(one.slot, one.speaking.joining())

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
