"""Run speeches that share a running batch: it gives each what it needs next, and gives out their parts."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from tts_core.codecs.policy import CodecPolicy
from tts_core.errors import CancelledError, own_error
from tts_core.nn.beside import Pending, Then
from tts_core.nn.calls import apart, drop_errors
from tts_core.nn.guard import check_sound, checked
from tts_core.results import FinishReason, Meter
from tts_core.serving.session import Event, Failed, Part, Session
from tts_core.speaking.admission import Admission
from tts_core.speaking.delivery import Delivered
from tts_core.speaking.net import Net
from tts_core.speaking.running import Running, RunningBatch
from tts_core.speaking.speech import (
    Append,
    Encode,
    Free,
    Ids,
    MoreText,
    Run,
    Slot,
    Sound,
    Speech,
    Work,
)
from tts_core.speaking.windows import WindowQueue
from tts_core.speech.report import StageReport

SILENT = np.zeros(0, np.float32)
NOTHING = Sound(np.zeros((0, 0), np.int32), 0)


@dataclass(eq=False)
class _Member:
    """A request that has joined.

    waits: what its speech waits for.
    texts: that came and were not read; None is the end.
    has_ended: the end was read.
    held: its last sound, which ends the speech if nothing follows.
    """

    key: int
    request: Any
    speech: Speech
    parts: Delivered
    cancel: threading.Event
    texts: deque[str | None] = field(default_factory=deque)
    has_ended: bool = False
    waits: Ids | MoreText | Work | None = None
    held: Sound | None = None


@dataclass(frozen=True, eq=False)
class _Window:
    """A sound in the queue. reason: of the end of the speech, with its last one."""

    member: _Member
    sound: Sound
    reason: FinishReason | None = None


@dataclass(eq=False)
class _Job:
    """Work in the queue.

    run: None before its turn.
    is_stepped: a step of it ran.
    begun: seconds of the clock.
    """

    member: _Member
    work: Work
    run: Run | None = None
    is_stepped: bool = False
    begun: float = 0.0


class SpeechSession(Session):
    """A running batch of speeches, which it owns.

    speak: the model's speech, for a request, its networks and windows.
    policy: the codec's windows; None decodes each piece as a whole.
    has_sound: False for codes alone, without samples.
    is_late: nothing is decoded before all speeches have their codes, and the running batch's memory is free:
    for requests that join together, whose sound nobody awaits.
    report: takes the stages and steps of all requests.
    meter: of the only request, where its time began before it joins.
    """

    def __init__(
        self,
        net: Net,
        speak: Callable[[Any, Any, CodecPolicy | None], Speech],
        batch: RunningBatch,
        admission: Admission,
        rehearsal: Callable[[], Any],
        *,
        policy: CodecPolicy | None,
        has_sound: bool = True,
        is_late: bool = False,
        report: StageReport | None = None,
        meter: Meter | None = None,
    ):
        self.net, self.admission, self.policy, self.has_sound = net, admission, policy, has_sound
        self._speak, self._rehearsal, self._is_late = speak, rehearsal, is_late
        self._report, self._meter = report or StageReport(), meter
        self._has_listeners = policy is not None and policy.is_heard
        self.slots = Running(batch, admission.places)
        self.members: dict[int, _Member] = {}
        self._joined = 0  # requests so far
        self._wanted: list[Slot] = []  # that join before the next step
        self._jobs: list[_Job] = []
        self._windows = WindowQueue[_Window, np.ndarray](
            net.host,
            self._decode,
            launch=self._launch if has_sound and net.host.overlaps else None,
            split=lambda windows: net.split([window.sound for window in windows]),
            owner=lambda window: window.member,
            is_urgent=lambda window: window.sound.is_urgent,
            is_wanted=lambda window: window.member.key in self.members,
            most=admission.places if self._has_listeners else None,
        )
        net.host.reset_peak()

    @property
    def places(self) -> int:
        return self.admission.places

    @property
    def running(self) -> int:
        return len(self.members)

    @property
    def waiting(self) -> bool:
        return self._is_idle and not (self.slots.has_launched or self._windows.is_busy)

    @property
    def _is_idle(self) -> bool:
        """True if no step has something to do."""
        return not (self._wanted or self._jobs or self.slots.can_step)

    @property
    def promised(self) -> int:
        return self.admission.promised([one.request for one in self.members.values()])

    def fits(self, request: Any, *, promised: int = 0) -> bool:
        return self.admission.fits(request, [one.request for one in self.members.values()], promised)

    def prepare(self) -> None:
        if self.has_sound and self.policy is not None:
            self.net.prepare(self.policy)

    def rehearsal(self) -> Any:
        return self._rehearsal()

    def join(self, request: Any, *, more: bool = False, cancel: threading.Event | None = None) -> int:
        texts = deque[str | None]()
        if more or request.is_open:
            request = request.opened()
            texts += [request.text] if more else [request.text, None]
        self._joined += 1
        parts = Delivered(request, self._meter or Meter(self.net.sample_rate, self.net.stages))
        speech = self._speak(request, self.net, self.policy)
        one = _Member(self._joined, request, speech, parts, cancel or threading.Event(), texts)
        self.members[one.key] = one
        try:
            self._advance(one, None)
            for slot in [*self._wanted]:
                self._begin(slot)
        except Exception:
            self.leave(one.key)
            raise
        return one.key

    def feed(self, key: int, text: str) -> None:
        self._hear(self.members[key], text)

    def end(self, key: int) -> None:
        if key in self.members:
            self._hear(self.members[key], None)

    def leave(self, key: int) -> None:
        one = self.members.pop(key, None)
        if one is not None:
            self._retire(one)

    def step(self) -> list[Event]:
        """Let slots join, run a step of the network and of the work, and decode the windows that they
        complete.
        """
        for slot in [*self._wanted]:
            self._attempt(slot.owner, partial(self._begin, slot))
        if self.slots.can_step:
            for _ in range(self.slots.batch.steps):
                self._report.check()
        for slot, ids in self.slots.turn():
            if slot.index is not None:
                self._attempt(slot.owner, partial(self._advance, slot.owner, ids))
        self._work()
        if self._is_late and not self._is_idle:
            return []
        return self._heard()

    def close(self) -> None:
        for key in [*self.members]:
            self.leave(key)
        self._windows.close()
        del self.slots
        drop_errors(self.net.host)

    def _hear(self, one: _Member, text: str | None) -> None:
        """Let a speech read text that has come. Raises UsageError for text that cannot be read."""
        one.texts.append(text)
        match one.waits:
            case MoreText():
                self._advance(one, self._text(one))
            case Ids(or_text=True):
                self._advance(one, None)

    def _text(self, one: _Member) -> str | None:
        """Take the next text that a speech has not read; None is the end."""
        text = one.texts.popleft()
        one.has_ended |= text is None
        return text

    def _begin(self, slot: Slot) -> None:
        """Let a slot's text join the running batch."""
        self._wanted.remove(slot)
        self._tell(slot.stage, slot.steps)
        slot.begun = time.perf_counter()
        self.slots.join(slot)

    def _advance(self, one: _Member, given: Any) -> None:
        """Give a speech what it waited for, and whatever else it needs that takes no step."""
        one.waits = None
        while one.waits is None:
            try:
                need = one.speech.send(given)
            except StopIteration as end:
                self._pass_on(one, end.value)
                return
            self._pass_on(one)
            given = None
            match need:
                case Encode():
                    self._tell(need.stage)
                    begun = time.perf_counter()
                    given = need.call()
                    self._count(one, need.stage, begun)
                case Ids():
                    if need.slot.owner is None:
                        need.slot.owner = one
                        self._wanted.append(need.slot)
                    if not (need.or_text and one.texts):
                        one.waits = need
                case Append():
                    if need.slot in self._wanted:
                        self._begin(need.slot)
                    self.slots.feed(need.slot, need.ids, more=need.more)
                case Free():
                    self.slots.leave(need.slot)
                    self._count(one, need.slot.stage, need.slot.begun)
                case Work():
                    self._jobs.append(_Job(one, need))
                    one.waits = need
                case Sound():
                    one.held = need
                case MoreText():
                    if one.texts:
                        given = self._text(one)
                    else:
                        assert not one.has_ended, "a speech waits for text after its end"
                        one.waits = need

    def _work(self) -> None:
        """Run a step of the first work; work without steps is followed by the next."""
        while self._jobs:
            job = self._jobs[0]
            self._attempt(job.member, partial(self._go_on, job))
            if job.is_stepped:
                return

    def _go_on(self, job: _Job) -> None:
        if job.run is None:
            self._tell(job.work.stage, job.work.steps)
            job.begun = time.perf_counter()
            job.run = apart(self.net.host, job.work.begin)
        if not job.run.done:
            self._report.check()
            job.is_stepped = True
            apart(self.net.host, job.run.step)
        if job.run.done:
            made = job.run.result()
            self._jobs.remove(job)
            self._count(job.member, job.work.stage, job.begun)
            self._advance(job.member, made)

    def _attempt(self, one: _Member, work: Callable[[], None]) -> None:
        """Do work of one request only. If it cannot go on, it fails after what was spoken.

        An error that may belong to the batch's steps is raised.
        """
        try:
            work()
        except CancelledError:  # by the caller of all requests
            raise
        except Exception as error:
            found = own_error(error)
            self._pass_on(one)
            self._retire(one)
            self._windows.fail(_Window(one, NOTHING), found)

    def _retire(self, one: _Member) -> None:
        """End a speech; its sound may still come."""
        one.speech.close()
        one.waits = None
        self._wanted = [slot for slot in self._wanted if slot.owner is not one]
        self._jobs = [job for job in self._jobs if job.member is not one]
        self.slots.drop(one)

    def _pass_on(self, one: _Member, reason: FinishReason | None = None) -> None:
        """Let a speech's last sound be decoded. reason: of the end of the speech, if it is that."""
        if one.held is not None:
            self._windows.add([_Window(one, one.held, reason)])
            one.held = None

    def _heard(self) -> list[Event]:
        """Give out windows that are decoded.

        It waits for one if nothing else runs, or if the only listener waits for the first sound.
        """
        [*members] = self.members.values()
        alone = len(members) == 1 and self._has_listeners and not members[0].parts.meter.samples
        ended = self._windows.ended(wait=alone or self._is_idle)
        peak = self.net.host.peak_bytes() if ended else 0  # once: CUDA's allocator collects every figure
        return [self._event(*each, peak) for each in ended if each[0].member.key in self.members]

    def _event(self, window: _Window, made: np.ndarray | Exception, peak: int) -> Event:
        key, sound = window.member.key, window.sound
        try:
            if isinstance(made, Exception):
                raise made
            if len(made) and sound.after is not None:
                made = sound.after(made)
            part = window.member.parts.part(sound, made, window.reason, peak_bytes=peak)
        except Exception as error:
            found = own_error(error)
            self.leave(key)
            return Failed(key, found)
        if self.net.heard and self.has_sound:
            self._report.add(part, self.net.heard)
        if window.reason is not None:
            self.leave(key)
        return Part(key, part)

    def _launch(self, windows: Sequence[_Window]) -> Pending[list[np.ndarray | Exception]] | None:
        sounds, begun = [window.sound for window in windows], time.perf_counter()
        launched = self.net.launch(sounds, self.policy) if all(map(_has_frames, sounds)) else None
        if launched is None:
            return None
        self._tell_sound()

        def checked_all(waves: list[np.ndarray]) -> list[np.ndarray | Exception]:
            self._count_sound(windows, begun)
            if any(sound.memory is not None for sound in sounds):  # it cannot be decoded again
                return [checked(wave) for wave in waves]
            for wave in waves:
                check_sound(wave)
            return [*waves]

        return Then(launched, checked_all)

    def _decode(self, windows: Sequence[_Window]) -> list[np.ndarray]:
        """Decode windows now. Raises CancelledError once all their requests are cancelled."""
        made = [SILENT] * len(windows)
        heard = [place for place, window in enumerate(windows) if _has_frames(window.sound)]
        if not (self.has_sound and heard):
            return made

        def check() -> None:
            self._report.check()
            if all(window.member.cancel.is_set() for window in windows):
                raise CancelledError("generation: cancelled")

        begun = time.perf_counter()
        self._tell_sound()
        waves = self.net.decode([windows[place].sound for place in heard], self.policy, check)
        self._count_sound(windows, begun)
        for place, wave in zip(heard, waves, strict=True):
            check_sound(wave)
            made[place] = wave
        return made

    def _tell(self, stage: str, steps: int | None = None) -> None:
        """Report that a stage begins. Raises CancelledError."""
        if stage:
            self._report.tell(stage, steps)

    def _tell_sound(self) -> None:
        if self.net.stages:
            self._tell(self.net.stages[-1])

    def _count(self, one: _Member, stage: str, begun: float) -> None:
        """Add the time of a stage. begun: seconds of the clock."""
        if stage:
            one.parts.meter.stage_seconds[stage] += time.perf_counter() - begun

    def _count_sound(self, windows: Sequence[_Window], begun: float) -> None:
        if self.net.stages:
            for window in windows:
                self._count(window.member, self.net.stages[-1], begun)


def _has_frames(sound: Sound) -> bool:
    return sound.codes.shape[1] > 0
