"""Dia's running batch: the decoder's rows of all requests in one step, and codec windows in shared calls.

A request speaks its pieces in order, one at a time. Where the device can, windows are decoded beside steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from tts_core.audio.voice_cache import VoiceCache
from tts_core.codecs.dac import decode_lookahead
from tts_core.codecs.dac_calls import Passage, split
from tts_core.codecs.policy import CodecPolicy
from tts_core.dia.grid import DelayGrid
from tts_core.dia.memory import DiaJob, grid_rows
from tts_core.dia.request import DiaRequest
from tts_core.dia.room import Room
from tts_core.dia.speaking import DiaSpeaking, DiaWindow
from tts_core.nn.beside import Pending
from tts_core.nn.calls import apart
from tts_core.results import Meter
from tts_core.serving.session import Event, Part
from tts_core.serving.slot_session import Member, SlotSession
from tts_core.speaking.windows import MemberWindow, Sounding

if TYPE_CHECKING:
    from tts_core.dia.engine import DiaEngine


@dataclass(eq=False)
class _DiaMember(Member):
    """A request with the rows of its piece.

    asked, made: frames of the piece whose samples were asked for, and given out.
    is_ended: True once all windows of the piece were asked for.
    """

    job: DiaJob
    speaking: DiaSpeaking
    piece: DiaRequest = field(init=False)
    grid: DelayGrid = field(init=False)
    asked: int = field(init=False)
    made: int = field(init=False)
    is_ended: bool = field(init=False)


_Window = MemberWindow[_DiaMember, DiaWindow]


class DiaSession(SlotSession[_DiaMember]):
    """A running batch of at most `places` requests. Raises ResourceError for too little memory.

    rehearsal: builds a short request.
    policy: the codec's windows.
    job: bounds each request that will join; None for any.
    sound: False for codes alone; a request is then one part, without samples.
    late: True to decode nothing before all requests have their codes, and the decoder's memory is free: for
    requests that join together, whose sound nobody awaits.
    """

    def __init__(
        self,
        engine: DiaEngine,
        places: int,
        rehearsal: Callable[[], DiaRequest],
        *,
        policy: CodecPolicy,
        job: DiaJob | None = None,
        sound: bool = True,
        late: bool = False,
    ):
        self.engine, self._rehearsal, self._is_late = engine, rehearsal, late
        self.policy, self._has_sound = policy, sound
        config = engine.config
        longest = job or DiaJob(text_bytes=config.max_text_bytes, frames=config.max_frames)
        self.room = Room(engine.configs, policy, engine.host, replace(longest, batch=1))
        self._voices = VoiceCache()
        self.lookahead = decode_lookahead(engine.codec_config)
        places, rows = self.room.places(places), 1 + grid_rows(config, longest)
        slots = engine.slots(places, rows=rows, text_rows=longest.text_bytes, guided=longest.guided)
        beside = sound and engine.host.overlaps
        sounding = Sounding(
            engine.host,
            self._decode,
            launch=self._launch if beside else None,
            split=self._split if beside else None,
            owner=lambda asked: asked.one,
            is_urgent=lambda asked: asked.window.passage.start == 0,
            is_wanted=lambda asked: asked.one.key in self.members,
            most=places if policy.is_heard else None,
        )
        super().__init__(slots, places, engine.host, sounding)
        engine.host.reset_peak()

    @property
    def promised(self) -> int:
        return self.room.promised([one.job for one in self.members.values()])

    def prepare(self) -> None:
        if self._has_sound:
            self.engine.prepare_windows(self.policy)

    def rehearsal(self) -> DiaRequest:
        return self._rehearsal()

    def needed(self, request: DiaRequest) -> int:
        """Count nothing by itself; `room` counts the requests together."""
        return 0

    def fits(self, request: DiaRequest, *, promised: int = 0) -> bool:
        jobs = [one.job for one in self.members.values()]
        return self.room.fits(jobs, request.job(), promised=promised) and self.running < self.places

    def begin(self, request: DiaRequest, member: Member) -> _DiaMember:
        """Encode the reference, and let the first piece take a slot."""
        meter = Meter(self.engine.codec_config.sample_rate)
        speaking = DiaSpeaking(request.encoded(self._encode), meter)
        one = _DiaMember(**vars(member), job=request.job(), speaking=speaking)
        self._say(one)
        return one

    def step(self) -> list[Event]:
        """Run some rows of the decoder, then the codec windows that they complete."""
        events: list[Event] = []
        for one, drawn in self.turns.draws():
            events += self.attempt(one, partial(self._accept, one, drawn))
        for one in [*self.members.values()]:
            events += self.attempt(one, partial(self._ask, one))
        for one in self.members.values():
            if one.is_ended:
                self.turns.end(one)  # before the codec runs: its memory is free
        if self._is_late and self.turns.running:
            return events
        return [*events, *self._heard(self.sounding.ended(wait=self._is_due))]

    def _encode(self, samples: np.ndarray) -> np.ndarray:
        """Encode a reference, (L,) → (Q, P); a configured voice comes with many requests."""
        return self._voices.encoded(
            [samples], lambda recordings: apart(self.engine.host, partial(self.engine.encode, recordings[0]))
        )

    def _say(self, one: _DiaMember) -> None:
        """Let the next piece take a slot."""
        piece = one.piece = one.speaking.begin()
        one.grid, one.asked, one.made, one.is_ended = piece.grid(), 0, 0, False
        self.turns.begin(one, one.grid.joining(piece.tokens, piece.sampling, piece.noise[0]))

    def _accept(self, one: _DiaMember, drawn: np.ndarray) -> None:
        """Take the rows of a request's steps, (steps, Q), up to the end of its piece."""
        for ids in drawn:
            if one.grid.done:
                break
            if ids.min() < 0:
                self._fail(one, self.engine.fault(one.piece, one.grid))
                break
            one.grid.accept(ids)

    def _fail(self, one: _DiaMember, error: Exception) -> None:
        """Let a request fail once the windows before are given out."""
        one.is_ended = True
        self.sounding.fail(_Window(one, self._window(one, one.asked, one.asked)), error)

    @property
    def _is_due(self) -> bool:
        """True if nothing else runs, or the only listener waits for the first sound."""
        [*members] = self.members.values()
        alone = len(members) == 1 and self.policy.is_heard and members[0].made == 0
        return alone or not self.turns.running

    def _heard(self, ended: Sequence[tuple[_Window, np.ndarray | Exception]]) -> list[Event]:
        """Give out windows that are decoded, and begin the piece that follows a request's last one."""
        peak = self.host.peak_bytes() if ended else 0  # once for all: CUDA's allocator collects every figure

        def give(one: _DiaMember, window: DiaWindow, sound: np.ndarray) -> list[Event]:
            one.made = window.passage.stop
            part = Part(one.key, one.speaking.part(window, sound, peak_bytes=peak))
            if one.speaking.done:
                self.leave(one.key)
            elif window.finish_reason is not None:
                return [part, *self.attempt(one, partial(self._say, one))]
            return [part]

        return self.give_out(ended, give)

    def _split(self, asked: Sequence[_Window]) -> list[Sequence[int]]:
        return split(self.engine.codec_config, _passages(asked), most=self.engine.most_fed)

    def _launch(self, asked: Sequence[_Window]) -> Pending[list[np.ndarray]]:
        return self.engine.launch_windows(_passages(asked))

    def _decode(self, asked: Sequence[_Window]) -> list[np.ndarray]:
        if not self._has_sound:
            return [np.zeros(0, np.float32) for _ in asked]
        return self.engine.decode_windows(_passages(asked))

    def _ask(self, one: _DiaMember) -> None:
        """Let the windows of a piece be decoded whose samples are final; once it is done, all that are left.

        An empty one ends a piece whose frames were all asked for before it was known to be done.
        """
        grid, asked, known = one.grid, [], one.grid.frames
        if one.is_ended or not (self._has_sound or grid.done):
            return
        ready = known if grid.done else known - self.lookahead
        while one.asked < ready:
            stop = self.policy.served_stop(one.asked) if self._has_sound else known
            if grid.done:
                stop = min(stop, known)
            if stop > ready:
                break
            asked.append(self._window(one, one.asked, stop))
            one.asked = stop
        if grid.done:
            one.is_ended = True
            if not asked:
                asked = [self._window(one, known, known)]
        self.sounding.add([_Window(one, window) for window in asked])

    def _window(self, one: _DiaMember, start: int, stop: int) -> DiaWindow:
        grid = one.grid
        ended = grid.done and stop == grid.frames
        return DiaWindow(
            Passage(grid.codes(), start, stop), grid.filled, grid.finish_reason if ended else None
        )


def _passages(asked: Sequence[_Window]) -> list[Passage]:
    return [each.window.passage for each in asked]
