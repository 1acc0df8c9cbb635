"""Pipelines without networks: every text is spoken word by word, and the sound is the words' numbers."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tts_core.audio.delivery import Pacing
from tts_core.errors import GenerationError, ResourceError, UsageError
from tts_core.results import GenerationResult, Meter
from tts_core.serving.session import Event, Failed, Part
from tts_core.text.captions import Cue

RATE = 1000
SAMPLES = 250  # of a word


@dataclass(frozen=True)
class Said:
    """A checked request."""

    words: tuple[str, ...]
    seed: int = 0

    @property
    def pacing(self) -> Pacing:
        """Without pauses."""
        return Pacing((" ".join(self.words),), (None, None))

    @property
    def seconds(self) -> float:
        """Length of the speech."""
        return len(self.words) * SAMPLES / RATE


def sound(word: str) -> np.ndarray:
    """(L,) float32, the same for the same word."""
    random = np.random.default_rng(list(word.encode()))
    return random.uniform(-0.5, 0.5, SAMPLES).astype(np.float32)


def part(meter: Meter, request: Said, place: int) -> GenerationResult:
    """Speak a word. The word "choke" fails."""
    word, last = request.words[place], place == len(request.words) - 1
    if word == "choke":
        raise GenerationError("talker: choked")
    audio = sound(word)
    meter.add(len(audio))
    return meter.result(
        audio,
        np.full((1, 1), place, np.int32),
        seed=request.seed,
        token_count=place + 1,
        peak_bytes=0,
        segment_idx=place,
        finish_reason="stop" if last else None,
        cues=[Cue(" ".join(request.words), 0, (place + 1) * SAMPLES / RATE)] if last else (),
    )


class Chorus:
    """A session that speaks a word of each request a step, and takes text while it speaks.

    log: what was called, for tests of the order.  gate: if given, every step waits for one release.
    """

    promised = 0

    def __init__(self, places: int, log: list[str], gate: threading.Semaphore | None = None):
        self.places, self.log, self.gate = places, log, gate
        self.said: dict[int, tuple[Said, int, Meter]] = {}
        self.open: set[int] = set()
        self.joined = 0

    @property
    def running(self) -> int:
        return len(self.said)

    @property
    def waiting(self) -> bool:
        return not any(self._ready(key) for key in self.said)

    def _ready(self, key: int) -> bool:
        request, place, _ = self.said[key]
        return place + (key in self.open) < len(request.words)

    def fits(self, request: Said, *, promised: int = 0) -> bool:
        """As in Session. A request for "everything" never fits."""
        if request.words == ("everything",):
            raise ResourceError("memory: too little")
        return self.running < self.places

    def join(self, request: Said, *, more: bool = False, cancel: threading.Event | None = None) -> int:
        self.joined += 1
        self.said[self.joined] = request, 0, Meter(RATE)
        if more:
            self.open.add(self.joined)
        self.log.append(f"join {request.words[0]}")
        return self.joined

    def feed(self, key: int, text: str) -> None:
        if not text.strip():
            raise UsageError("text: blank")
        request, place, meter = self.said[key]
        self.said[key] = replace(request, words=(*request.words, *text.split())), place, meter

    def end(self, key: int) -> None:
        self.open.discard(key)

    def step(self) -> list[Event]:
        """As in Session. The words "crash" and "hoard", which lacks memory, end the whole session."""
        if self.gate is not None:
            self.gate.acquire()
        self.log.append("step " + " ".join(one.words[0] for one, _, _ in self.said.values()))
        events: list[Event] = []
        for key in [key for key in self.said if self._ready(key)]:
            request, place, meter = self.said[key]
            if request.words[place] == "crash":
                raise RuntimeError("crashed")
            if request.words[place] == "hoard":
                raise MemoryError
            try:
                result = part(meter, request, place)
            except GenerationError as error:
                events.append(Failed(key, error))
                self.leave(key)
                continue
            events.append(Part(key, result))
            self.said[key] = request, place + 1, meter
            if result.is_final_chunk:
                self.leave(key)
        return events

    def prepare(self) -> None:
        """As in Session."""

    def leave(self, key: int) -> None:
        if key in self.said:
            self.log.append(f"leave {self.said.pop(key)[0].words[0]}")

    def rehearsal(self) -> Said:
        return Said(("rehearsal",))

    def close(self) -> None:
        self.log.append("close")
        self.said.clear()


class Singers:
    """A pipeline that speaks in chorus."""

    sample_rate = RATE

    def __init__(self, log: list[str], gate: threading.Semaphore | None = None):
        self.log, self.gate = log, gate

    def request(self, text: str, options: Any = None, prompt: Any = None) -> Said:
        """Check a text."""
        if not text.split():
            raise UsageError("text: empty; there is nothing to say")
        return Said(tuple(text.split()), options or 0)

    def session(self, places: int) -> Chorus:
        """Open a session."""
        return Chorus(places, self.log, self.gate)
