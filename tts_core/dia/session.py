"""Dia's running batch: requests join and leave between two steps, and their codec windows share calls.

A request has one slot, which its pieces take in turn. The steps that follow are submitted before the draws of
the last ones are read.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from tts_core.codecs.dac import decode_lookahead
from tts_core.codecs.dac_calls import Passage
from tts_core.dia.engine import Engine
from tts_core.dia.grid import DelayGrid
from tts_core.dia.memory import Job
from tts_core.dia.request import Batch, Request
from tts_core.dia.room import Room
from tts_core.dia.slots import Drawn
from tts_core.dia.speaking import Speaking
from tts_core.errors import GenerationError, SpeechError, UsageError
from tts_core.results import Meter
from tts_core.serving.session import Event, Failed, Part


@dataclass(eq=False)
class Run:
    """One piece in its slot. made: frames whose samples were given out."""

    batch: Batch
    grid: DelayGrid
    made: int = 0


@dataclass(eq=False)
class Row:
    """A request in progress, and its slot."""

    key: int
    slot: int
    job: Job
    speaking: Speaking
    run: Run = field(init=False)


class DiaSession:
    """A session of either side; see tts_core.serving.session.Session.

    rehearsal: builds a short request.
    """

    def __init__(self, engine: Engine, places: int, rehearsal: Callable[[], Request]):
        self.engine, self.rehearsal, self.config = engine, rehearsal, engine.config
        self.room = Room(engine.config, engine.codec_config, engine.policy, engine.host)
        self.places = self.room.places(places)
        rows = 2 + self.config.max_frames + self.config.longest_delay
        self.slots = engine.slots(self.places, rows=rows, text_rows=self.config.max_text_bytes)
        self.lookahead = decode_lookahead(engine.codec_config)
        self._joined = 0
        self._rows: dict[int, Row] = {}  # by key
        self._ahead: tuple[Drawn, list[tuple[Row, Run]]] | None = None  # submitted, not yet read
        engine.host.reset_peak()

    @property
    def running(self) -> int:
        """As in Session."""
        return len(self._rows)

    @property
    def waiting(self) -> bool:
        """As in Session."""
        return not self._rows

    @property
    def promised(self) -> int:
        """As in Session."""
        return self.room.promised([row.job for row in self._rows.values()])

    def fits(self, request: Request, *, promised: int = 0) -> bool:
        """As in Session."""
        if self.running >= self.places:
            return False
        return self.room.fits([row.job for row in self._rows.values()], request.job(), promised=promised)

    def join(self, request: Request, *, more: bool = False, cancel: threading.Event | None = None) -> int:
        """As in Session. The codec encodes its reference."""
        if more:
            raise UsageError("text: Dia reads its text at once; give all of it")
        taken = {row.slot for row in self._rows.values()}
        slot = next(place for place in range(self.places) if place not in taken)
        meter = Meter(self.engine.codec_config.sample_rate)
        speaking = Speaking(request.encoded(self.engine.encode), meter, self.engine.host)
        self._joined += 1
        row = Row(self._joined, slot, request.job(), speaking)
        self._begin(row)
        self._rows[row.key] = row
        return row.key

    def feed(self, key: int, text: str) -> None:
        """As in Session."""
        raise UsageError("text: Dia reads its text at once")

    def end(self, key: int) -> None:
        """As in Session."""

    def step(self) -> list[Event]:
        """As in Session: a burst of decoder rows, then the codec windows that they complete."""
        if not self._rows:
            return []
        ahead, self._ahead = self._ahead, self._launch()
        if ahead is None:
            return []
        drawn, rows = ahead
        events = [*self._accept(drawn.read(), rows), *self._speak()]
        if not self._rows:
            self._ahead = None
        return events

    def leave(self, key: int) -> None:
        """As in Session."""
        row = self._rows.pop(key, None)
        if row is not None:
            self.slots.leave(row.slot)
        if not self._rows:
            self._ahead = None

    def close(self) -> None:
        """As in Session."""
        for key in [*self._rows]:
            self.leave(key)
        del self.slots

    def _begin(self, row: Row) -> None:
        """Let the next piece of a request take its slot."""
        batch = row.speaking.begin()
        grid = DelayGrid(
            self.config, batch.prompts, batch.max_frames, last_channel_free=batch.last_channel_free
        )
        self.slots.join(row.slot, grid.joining(batch.tokens[0], batch.sampling, batch.noise[0]))
        row.run = Run(batch, grid)

    def _launch(self) -> tuple[Drawn, list[tuple[Row, Run]]]:
        rows = [(row, row.run) for row in self._rows.values()]
        return self.slots.launch(self.slots.burst), rows

    def _accept(self, drawn: np.ndarray, rows: list[tuple[Row, Run]]) -> Iterator[Event]:
        """Take drawn rows, (steps, B, C), into the grids of the pieces that they were drawn for."""
        for row, run in rows:
            if self._rows.get(row.key) is not row or row.run is not run:
                continue
            for ids in drawn[:, row.slot : row.slot + 1]:
                if run.grid.done:
                    break
                if ids.min() < 0:
                    self.leave(row.key)
                    yield Failed(row.key, self._fault(ids, run))
                    break
                run.grid.accept(ids)

    def _fault(self, ids: np.ndarray, run: Run) -> GenerationError:
        guided = run.batch.sampling.cfg_scale != 0
        return self.engine.fault(ids, run.batch, run.grid, guided=guided)

    def _speak(self) -> Iterator[Event]:
        """Decode all windows that are complete, in as few calls as possible."""
        rows = [(row, start, stop) for row in self._rows.values() for start, stop in self._windows(row.run)]
        if not rows:
            return
        passages = [Passage(row.run.grid.codes(0), start, stop) for row, start, stop in rows]
        sounds = self.engine.decode_windows(passages)
        for (row, start, stop), sound in zip(rows, sounds, strict=True):
            run = row.run
            result = row.speaking.part(run.grid, start, stop, sound)
            yield Part(row.key, result)
            run.made = stop
            if row.speaking.done:
                self.leave(row.key)
            elif run.grid.done and stop == run.grid.frames(0):
                yield from self._go_on(row)

    def _go_on(self, row: Row) -> Iterator[Event]:
        self.slots.leave(row.slot)
        try:
            self._begin(row)
        except SpeechError as error:
            self.leave(row.key)
            yield Failed(row.key, error)

    def _windows(self, run: Run) -> list[tuple[int, int]]:
        """List the windows of a piece whose samples are final, [start, stop) each.

        An empty one ends a piece whose frames were all given out before it was known to be done.
        """
        known, cuts, made = run.grid.frames(0), [], run.made
        ready = known if run.grid.done else known - self.lookahead
        while made < ready:
            stop = self.engine.policy.served_stop(made)
            if run.grid.done:
                stop = min(stop, known)
            if stop > ready:
                break
            cuts.append((made, stop))
            made = stop
        if run.grid.done and not cuts:
            cuts = [(known, known)]
        return cuts
