"""Run speeches that share a running batch: it gives each what it needs next, and gives out their parts.

Every call comes from one thread, the one that loaded the model: streams of MLX belong to a thread. Codes of a
request equal those of it by itself (up to near-ties of float32), and cuts of its parts depend on it only.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tts_core.codecs.policy import CodecPolicy
from tts_core.errors import CancelledError, own_error
from tts_core.nn.calls import apart, drop_errors
from tts_core.pipeline import Callbacks
from tts_core.results import FinishReason, Meter
from tts_core.serving.session import Event, Failed, Part
from tts_core.speaking.admission import Admission
from tts_core.speaking.delivery import Delivered
from tts_core.speaking.live import LiveText
from tts_core.speaking.members import DueSound, Job, Member, Utterance
from tts_core.speaking.net import Net
from tts_core.speaking.rehearsal import measure_window
from tts_core.speaking.running import Running, RunningBatch
from tts_core.speaking.sounds import SILENCE, Sounds
from tts_core.speaking.speech import (
    All,
    Append,
    Encode,
    Free,
    Ids,
    MoreText,
    Slot,
    Sound,
    Speech,
    Work,
)


class SpeechSession:
    """A running batch of speeches, which it owns, without the model's weights. No key is used twice.

    speak: the model's speech, for a request, its networks and windows.
    policy: the codec's windows; None decodes each piece as a whole.
    has_sound: False for codes alone, without samples.
    is_late: nothing is decoded before all speeches have their codes, and the running batch's memory is free:
    for requests that join together, whose sound nobody awaits.
    report: takes the stages and steps of all requests.
    at_once: speeches that a request runs at the same time, at most.
    """

    def __init__(
        self,
        net: Net,
        speak: Callable[[Any, Any, CodecPolicy | None], Speech],
        batch: RunningBatch,
        admission: Admission,
        *,
        policy: CodecPolicy | None,
        has_sound: bool = True,
        is_late: bool = False,
        report: Callbacks | None = None,
        at_once: int = 1,
    ):
        self.net, self.admission, self.policy, self.has_sound = net, admission, policy, has_sound
        self._speak, self._is_late = speak, is_late
        self._report, self._at_once = report or Callbacks(), at_once
        self.slots = Running(batch, admission.places)
        self.members: dict[int, Member] = {}
        self._last_key = 0  # requests so far
        self._encodes: list[tuple[Utterance, Encode]] = []
        self._wanted: list[Slot] = []  # that join before the next step
        self._jobs: list[Job] = []
        self._promised: int | None = None  # of the requests that hold a place, once it is known
        self._sounds = Sounds(
            net,
            policy,
            self._report,
            has_sound=has_sound,
            places=admission.places,
            running=lambda: self.running,
            is_wanted=lambda window: window.member.key in self.members,
        )
        net.host.reset_peak()

    @property
    def places(self) -> int:
        """Requests that it can speak at once: those asked for, or fewer where memory is short."""
        return self.admission.places

    @property
    def running(self) -> int:
        """Requests that have joined and have neither finished, failed nor left."""
        return len(self.members)

    @property
    def waiting(self) -> bool:
        """True if `step` has nothing to do before the next `join`, `feed` or `end`."""
        return self._is_idle and not (self.slots.has_launched or self._sounds.is_busy)

    @property
    def _is_idle(self) -> bool:
        """True if no step has something to do."""
        can_begin = bool(self._wanted and self.slots.free)
        return not (can_begin or self._encodes or self._jobs or self.slots.can_step)

    @property
    def promised(self) -> int:
        """Upper bound of the bytes that its running requests may still allocate, by the memory plan."""
        if self._promised is None:
            self._promised = self.admission.promised(self._present())
        return self._promised

    def fits(self, request: Any, *, promised: int = 0) -> bool:
        """Return True if a request can join now: a place is free, and its memory by the plan.

        promised: bytes that sessions of other models may still allocate.
        Raises ResourceError for one that does not fit in an empty batch either.
        """
        if any(slot.owner.member.is_away for slot in self._wanted):
            return False
        counted = request.first if isinstance(request, LiveText) else request
        return self.admission.fits(counted, self._present(), promised)

    def _present(self) -> list[Any]:
        """The requests that hold a place."""
        return [member.request for member in self.members.values() if not member.is_away]

    def prepare(self) -> None:
        """Do what the first requests would wait for, besides what `rehearsal` runs."""
        self.slots.prepare()
        if self.has_sound and self.policy is not None:
            self.net.prepare(self.policy, self.places)
            measure_window(self.net, self.policy)

    def rehearsal(self) -> Any:
        """Build a short request that runs all of the model's kernels, for a warm-up."""
        return self.net.facts.rehearsal()

    def join(self, request: Any, *, more: bool = False, cancel: threading.Event | None = None) -> int:
        """Let a checked request begin with the next step; return its key. No network runs.

        more: its text goes on: `feed` follows, and `end`.
        cancel: set by any thread, for work that takes long. Who waits for the end of a step calls `leave`.
        Raises SpeechError, and the batch is as before, if the request cannot begin.
        """
        texts, is_open = deque[str | None](), more or request.is_open
        if isinstance(request, LiveText):
            counted, speech = request.first, request.spoken(self._speech)
        else:
            counted = request = request.opened() if is_open else request
            texts += [counted.text] if is_open else []
            speech = self._speech(counted)
        if is_open and not more:
            texts.append(None)
        self._last_key += 1
        member = Member(
            key=self._last_key,
            speech=speech,
            is_released=True,
            request=counted,
            parts=Delivered(request, Meter(self.net.sample_rate, self.net.stages)),
            cancel=cancel or threading.Event(),
            texts=texts,
        )
        self.members[member.key], self._promised = member, None
        try:
            self._advance(member)
        except Exception:
            self.leave(member.key)
            raise
        return member.key

    def begun(self, key: int) -> bool:
        """Return True once a request has taken part in a step."""
        return self.members[key].has_begun

    def wants(self, key: int) -> bool:
        """Return True if a request can take further text now."""
        member = self.members[key]
        return not member.texts and (isinstance(member.waits, MoreText) or member.takes_text)

    def feed(self, key: int, text: str) -> None:
        """Append text to a request that joined with `more`. Raises UsageError for unreadable text."""
        self._take_text(self.members[key], text)

    def end(self, key: int) -> None:
        """Say that a request's text is complete. A second time does nothing."""
        if key in self.members:
            self._take_text(self.members[key], None)

    def leave(self, key: int) -> None:
        """Drop a request; its place and memory are free before the next step. Unknown keys do nothing."""
        member = self.members.pop(key, None)
        if member is not None:
            self._retire(member)

    def step(self) -> list[Event]:
        """Encode a recording, let slots join, run a step of the network and of the work, and decode the
        windows that they complete. Recordings of requests that begin together are encoded before their first
        step. Returns what they gave, in order.

        A request that fails is an event; an error that is raised, as for a full memory in a decoder's step,
        whose caches have changed, ends the session with all its requests.
        """
        while self._encodes:
            voice, need = self._encodes.pop(0)
            self._attempt(voice, partial(self._answer, voice, partial(self._encode, voice, need)))
            if self.slots.can_step:
                break
        self._begin()
        if self.slots.can_step:
            for _ in range(self.slots.batch.steps):
                self._report.check()
        for slot, ids in self.slots.advance():
            if slot.index is not None:
                self._attempt(slot.owner, partial(self._advance, slot.owner, ids))
        self._work()
        if self._is_late and not self._is_idle:
            return []
        return self._sounded()

    def close(self) -> None:
        """Drop all requests and free the batch's memory. Nothing can join afterwards."""
        for key in [*self.members]:
            self.leave(key)
        self._sounds.close()
        del self.slots
        drop_errors(self.net.host)

    def _speech(self, request: Any) -> Speech:
        return self._speak(request, self.net, self.policy)

    def _take_text(self, member: Member, text: str | None) -> None:
        """Let a speech read text that has come. Raises UsageError for text that cannot be read."""
        member.texts.append(text)
        if isinstance(member.waits, MoreText):
            self._advance(member, member.take_text())
        elif member.takes_text:
            self._advance(member)

    def _encode(self, voice: Utterance, need: Encode) -> tuple[Any]:
        """Run a network on a recording."""
        self._tell(need.stage)
        begun = time.perf_counter()
        made = need.call()
        voice.member.parts.count(need.stage, begun)
        return (made,)

    def _begin(self) -> None:
        """Let texts that wait join the running batch together, as far as there are places for them."""
        ready, ended = list[Slot](), set[int]()
        for slot in [*self._wanted]:
            if slot in self._wanted and len(ready) < self.slots.free:
                self._attempt(slot.owner, partial(self._choose, slot, ready))
        ready = [slot for slot in ready if slot in self._wanted]
        self._wanted = [slot for slot in self._wanted if slot not in ready]
        for slot, error in zip(ready, self.slots.join(ready), strict=True) if ready else ():
            member = slot.owner.member
            if member.key not in ended:
                self._attempt(slot.owner, partial(self._go_in, slot, error))
            if error is not None:  # the request's others have left
                ended.add(member.key)

    def _choose(self, slot: Slot, ready: list[Slot]) -> None:
        """Let a slot's text be one of those that join, if its request fits beside the others."""
        member = slot.owner.member
        if member.is_away and not self.admission.fits(member.request, self._present(), 0):
            return
        if member.is_away:
            member.is_away, self._promised = False, None
        self._tell(slot.stage or self.net.sounding, slot.steps)
        slot.begun = time.perf_counter()
        ready.append(slot)

    def _go_in(self, slot: Slot, error: Exception | None) -> None:
        """Give a text that has joined what came before. Raises the error for which it could not join."""
        if error is not None:
            raise error
        slot.owner.member.has_begun = True
        for text in slot.texts:
            self.slots.feed(slot, text.ids, more=text.more)

    def _advance(self, utterance: Utterance, given: Any = None, *, error: Exception | None = None) -> None:
        """Give a speech what it waited for, and whatever else it needs that takes no step."""
        utterance.waits = None
        while utterance.waits is None:
            try:
                need = utterance.speech.send(given) if error is None else utterance.speech.throw(error)
            except StopIteration as end:
                utterance.finish_reason = end.value
                self._end(utterance)
                return
            self._pass_on(utterance)
            given = error = None
            match need:
                case Encode():
                    self._encodes.append((utterance, need))
                    utterance.waits = need
                case Ids():
                    if need.slot.owner is None:
                        need.slot.owner = utterance
                        self._wanted.append(need.slot)
                    if not (need.or_text and utterance.member.texts):
                        utterance.waits = need
                case Append():
                    if need.slot in self._wanted:
                        need.slot.texts.append(need)
                    else:
                        self.slots.feed(need.slot, need.ids, more=need.more)
                case Free():
                    self.slots.leave(need.slot)
                    utterance.member.parts.count(need.slot.stage, need.slot.begun)
                case Work():
                    self._jobs.append(Job(utterance, need))
                    utterance.waits = need
                case Sound():
                    utterance.held = (
                        need if utterance.pacing is None else replace(need, pacing=utterance.pacing)
                    )
                    utterance.pacing = None
                    if utterance.parent is not None:
                        utterance.codes.append(need.codes)
                case All():
                    utterance.waits = need
                    self._run(utterance, need)
                case MoreText():
                    if utterance.member.texts:
                        given = utterance.member.take_text()
                    else:
                        assert not utterance.member.has_ended, "a speech waits for text after its end"
                        utterance.waits = need
                        utterance.member.is_away = not self.slots.of(utterance.member)
                        self._promised = None

    def _run(self, utterance: Utterance, need: All) -> None:
        """Let speeches of a speech begin."""
        if need.text is not None:
            utterance.member.request, self._promised = need.text, None
        utterance.children = [Utterance(speech=speech, parent=utterance) for speech in need.speeches]
        utterance.children[0].pacing, utterance.pacing = need.pacing or utterance.pacing, None
        self._go_on(utterance)

    def _go_on(self, utterance: Utterance) -> None:
        """Begin as many speeches of a speech as may run at once; once all have ended, it goes on."""
        for child in utterance.begun(self._at_once):
            self._advance(child)
        if utterance.is_released:
            self._release(utterance)
        if utterance.children and all(child.finish_reason is not None for child in utterance.children):
            children, utterance.children = utterance.children, []
            utterance.held, children[-1].held = children[-1].held, None
            for child in children:
                self._pass_on(child)
                utterance.sounds += child.sounds
                utterance.codes += child.codes
            self._advance(utterance, [child.spoken for child in children])

    def _release(self, utterance: Utterance) -> None:
        """Let the sounds of a speech be decoded, and those of the speeches that it runs in their order."""
        utterance.is_released = True
        self._sounds.add([DueSound(utterance.member, sound) for sound in utterance.sounds])
        utterance.sounds = []
        for child in utterance.children:
            self._release(child)
            if child.finish_reason is None:
                break
            if child is not utterance.children[-1]:
                self._pass_on(child)

    def _end(self, utterance: Utterance) -> None:
        """Let what runs a speech that has ended go on."""
        if utterance.parent is None:
            self._pass_on(utterance, utterance.finish_reason)
        else:
            self._go_on(utterance.parent)

    def _pass_on(self, utterance: Utterance, reason: FinishReason | None = None) -> None:
        """Let a speech's last sound be decoded. reason: of the end of the request, if it is that."""
        if utterance.held is None:
            return
        if utterance.is_released:
            self._sounds.add([DueSound(utterance.member, utterance.held, reason)])
        else:
            utterance.sounds.append(utterance.held)
        utterance.held = None

    def _work(self) -> None:
        """Run a step of the first work; work without steps is followed by the next."""
        while self._jobs:
            job = self._jobs[0]
            self._attempt(job.voice, partial(self._answer, job.voice, partial(self._worked, job)))
            if job.is_stepped:
                return

    def _worked(self, job: Job) -> tuple[Any, ...]:
        """Run a step of work. Returns what it made, after the last one."""
        if job.run is None:
            self._tell(job.work.stage, job.work.steps)
            job.begun = time.perf_counter()
            job.run = apart(self.net.host, job.work.begin)
        if not job.run.done:
            self._report.check()
            job.is_stepped = True
            apart(self.net.host, job.run.step)
        if not job.run.done:
            return ()
        made = job.run.result()
        self._jobs.remove(job)
        job.voice.member.parts.count(job.work.stage, job.begun)
        return (made,)

    def _answer(self, utterance: Utterance, call: Callable[[], tuple[Any, ...]]) -> None:
        """Give a speech what a call apart made, if it is done, or throw the call's own error."""
        try:
            made = call()
        except CancelledError:  # by the caller of all requests
            raise
        except Exception as error:
            found = own_error(error)
            self._jobs = [job for job in self._jobs if job.voice is not utterance]
            self._advance(utterance, error=found)
        else:
            if made:
                self._advance(utterance, *made)

    def _attempt(self, utterance: Utterance, work: Callable[[], None]) -> None:
        """Do work of one request only. If it cannot go on, it fails after what was spoken.

        An error that may belong to the batch's steps is raised.
        """
        try:
            work()
        except CancelledError:
            raise
        except Exception as error:
            found = own_error(error)
            if utterance.is_released:
                self._pass_on(utterance)
            self._retire(utterance.member)
            self._sounds.fail(DueSound(utterance.member, SILENCE), found)

    def _retire(self, member: Member) -> None:
        """End a speech; its sound may still come."""
        member.speech.close()
        member.children, member.waits = [], None
        self._promised = None
        self._wanted = [slot for slot in self._wanted if slot.owner.member is not member]
        self._encodes = [(voice, need) for voice, need in self._encodes if voice.member is not member]
        self._jobs = [job for job in self._jobs if job.voice.member is not member]
        for slot in self.slots.of(member):
            self.slots.leave(slot)

    def _sounded(self) -> list[Event]:
        """Give out windows that are decoded.

        It waits for one if nothing else runs, or if the only listener waits for the first sound.
        """
        [*members] = self.members.values()
        alone = len(members) == 1 and self._sounds.has_listeners and not members[0].parts.meter.samples
        ended = self._sounds.ended(wait=alone or self._is_idle)
        peak = self.net.host.peak_bytes() if ended else 0  # once: CUDA's allocator collects every figure
        return [
            event
            for window, made in ended
            if window.member.key in self.members
            for event in self._events(window, made, peak)
        ]

    def _events(self, window: DueSound, made: np.ndarray | Exception, peak: int) -> list[Event]:
        """The next part of a request, and the last one where that reaches its limit; or its error."""
        key, sound = window.member.key, window.sound
        try:
            if isinstance(made, Exception):
                raise made
            if len(made) and sound.after is not None:
                made = sound.after(made)
            parts = window.member.parts.parts(sound, made, window.reason, peak_bytes=peak)
        except Exception as error:
            found = own_error(error)
            self.leave(key)
            return [Failed(key, found)]
        if self.has_sound:
            self._report.add(parts[0], self.net.sounding)
        if parts[-1].is_final_chunk:
            self.leave(key)
        return [Part(key, part) for part in parts]

    def _tell(self, stage: str, steps: int | None = None) -> None:
        """Report that a stage begins. Raises CancelledError."""
        if stage:
            self._report.tell(stage, steps)
