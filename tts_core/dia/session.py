"""Dia's running batch: the decoder's rows of all requests in one step, and codec windows in shared calls.

A request speaks its pieces in order, one at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from tts_core.audio.voice_cache import VoiceCache
from tts_core.codecs.dac import decode_lookahead
from tts_core.codecs.dac_calls import Passage
from tts_core.codecs.policy import CodecPolicy
from tts_core.dia.grid import DelayGrid
from tts_core.dia.memory import Job, grid_rows
from tts_core.dia.request import Request, Run
from tts_core.dia.room import Room
from tts_core.dia.speaking import Speaking
from tts_core.errors import SpeechError
from tts_core.nn.calls import apart
from tts_core.results import Meter
from tts_core.serving.session import Event, Part
from tts_core.serving.shared import shared
from tts_core.serving.slot_session import SlotSession, Spoken

if TYPE_CHECKING:
    from tts_core.dia.engine import Engine


@dataclass(eq=False)
class _Speaking(Spoken):
    """A request with the run of its piece. made: frames of the piece whose samples were given out."""

    job: Job
    speaking: Speaking
    run: Run = field(init=False)
    grid: DelayGrid = field(init=False)
    made: int = field(init=False)


class DiaSession(SlotSession[_Speaking]):
    """A running batch of at most `places` requests. Raises ResourceError for too little memory.

    rehearsal: builds a short request.
    policy: the codec's windows.
    job: bounds each request that will join; None for any.
    sound: False for codes alone; a request is then one part, without samples.
    """

    def __init__(
        self,
        engine: Engine,
        places: int,
        rehearsal: Callable[[], Request],
        *,
        policy: CodecPolicy,
        job: Job | None = None,
        sound: bool = True,
    ):
        self.engine, self.config, self._rehearsal = engine, engine.config, rehearsal
        self.policy, self._has_sound = policy, sound
        config = engine.config
        longest = job or Job(text_bytes=config.max_text_bytes, frames=config.max_frames)
        configs = {"dia": config, "dac": engine.codec_config}
        self.room = Room(configs, policy, engine.host, replace(longest, batch=1))
        self._voices = VoiceCache()
        self.lookahead = decode_lookahead(engine.codec_config)
        places, rows = self.room.places(places), 1 + grid_rows(config, longest)
        slots = engine.slots(places, rows=rows, text_rows=longest.text_bytes, guided=longest.guided)
        super().__init__(slots, places, engine.host)
        engine.host.reset_peak()

    @property
    def promised(self) -> int:
        return self.room.promised([one.job for one in self.spoken.values()])

    def rehearsal(self) -> Request:
        return self._rehearsal()

    def needed(self, request: Request) -> int:
        """As in SlotSession: nothing by itself; `room` counts the requests together."""
        return 0

    def fits(self, request: Request, *, promised: int = 0) -> bool:
        jobs = [one.job for one in self.spoken.values()]
        return self.room.fits(jobs, request.job(), promised=promised) and self.running < self.places

    def begin(self, request: Request, spoken: Spoken) -> _Speaking:
        """As in SlotSession. The reference is encoded here."""
        meter = Meter(self.engine.codec_config.sample_rate)
        speaking = Speaking(request.encoded(self._encode), meter)
        one = _Speaking(**vars(spoken), job=request.job(), speaking=speaking)
        self._say(one)
        return one

    def step(self) -> list[Event]:
        """As in Session: some rows of the decoder, then the codec windows that they complete."""
        events: list[Event] = []
        for one, drawn in self.turns.draws():
            for ids in drawn:
                if one.grid.done:
                    break
                if ids.min() < 0:
                    events.append(self.fail(one, self.engine.fault(one.run, one.grid)))
                    break
                one.grid.accept(ids)
        return [*events, *self._sound()]

    def _encode(self, samples: np.ndarray) -> np.ndarray:
        """Encode a reference, (L,) → (Q, P); a configured voice comes with many requests."""
        return self._voices.encoded(
            [samples], lambda recordings: apart(self.engine.host, partial(self.engine.encode, recordings[0]))
        )

    def _say(self, one: _Speaking) -> None:
        """Let the next piece take a slot."""
        run = one.run = one.speaking.begin()
        one.grid, one.made = run.grid(self.config), 0
        self.turns.begin(one, one.grid.joining(run.tokens, run.sampling, run.noise))

    def _sound(self) -> list[Event]:
        """Decode all windows that are complete, in as few calls as possible."""
        ready = [(one, *cut) for one in self.spoken.values() for cut in self._windows(one)]
        passages = [Passage(one.grid.codes(), start, stop) for one, start, stop in ready]
        events: list[Event] = []
        if not ready:
            return events
        for one in self.spoken.values():
            if one.grid.done:
                self.turns.end(one)  # before the codec runs: its memory is free
        sounds = shared(self.host, self._decode, passages)
        peak = self.host.peak_bytes()  # once for all: CUDA's allocator collects every figure that it has
        for (one, start, stop), sound in zip(ready, sounds, strict=True):
            if one.key not in self.spoken:
                continue  # an earlier window of it failed
            if isinstance(sound, SpeechError):
                events.append(self.fail(one, sound))
                continue
            grid, one.made = one.grid, stop
            part = one.speaking.part(grid, start, stop, sound, peak_bytes=peak)
            events.append(Part(one.key, part))
            if one.speaking.done:
                self.leave(one.key)
            elif grid.done and stop == grid.frames:
                events += self.attempt(one, partial(self._say, one))
        return events

    def _decode(self, passages: Sequence[Passage]) -> list[np.ndarray]:
        if not self._has_sound:
            return [np.zeros(0, np.float32) for _ in passages]
        return self.engine.decode_windows(passages)

    def _windows(self, one: _Speaking) -> list[tuple[int, int]]:
        """List the windows of a piece whose samples are final, [start, stop) each.

        An empty one ends a piece whose frames were all given out before it was known to be done.
        """
        grid, cuts, made = one.grid, [], one.made
        known = grid.frames
        if not self._has_sound:
            return [(0, known)] if grid.done else []
        ready = known if grid.done else known - self.lookahead
        while made < ready:
            stop = self.policy.served_stop(made)
            if grid.done:
                stop = min(stop, known)
            if stop > ready:
                break
            cuts.append((made, stop))
            made = stop
        if grid.done and not cuts:
            cuts = [(known, known)]
        return cuts
