"""Pipelines without networks: every text is spoken word by word; the sound is the words' numbers."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tts_core.audio.delivery import Delivery, Pacing
from tts_core.errors import GenerationError, ResourceError, SpeechError, UsageError
from tts_core.results import GenerationResult, Meter
from tts_core.serving.session import Event, Failed, Part
from tts_core.speaking.live import LiveText
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


@dataclass(eq=False)
class Sentences:
    """A text that comes sentence by sentence. texts: that came; None is the end."""

    live: LiveText
    delivery: Delivery
    texts: deque[str | None]

    def word(self, sound: np.ndarray, *, ends: bool) -> np.ndarray:
        """Deliver a word. ends: the sentence."""
        return self.delivery.add(sound, last_of_piece=ends, is_followed=False)


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
    """A session that speaks a word of each request a step, and takes text while it speaks; a LiveText takes
    sentences.

    log: what was called, for tests of the order.  gate: if given, every step waits for one release.
    """

    promised = 0

    def __init__(self, places: int, log: list[str], gate: threading.Semaphore | None = None):
        self.places, self.log, self.gate = places, log, gate
        self.said: dict[int, tuple[Said, int, Meter]] = {}
        self.open, self.stepped = set[int](), set[int]()
        self.live: dict[int, Sentences] = {}
        self.joined = 0

    @property
    def running(self) -> int:
        return len(self.said)

    @property
    def waiting(self) -> bool:
        return not any(self._ready(key) for key in self.said)

    def _ready(self, key: int) -> bool:
        request, place, _ = self.said[key]
        if key in self.live:
            return place < len(request.words) or bool(self.live[key].texts)
        return place + (key in self.open) < len(request.words)

    def fits(self, request: Any, *, promised: int = 0) -> bool:
        """As in Session. A request for "everything" never fits."""
        if isinstance(request, Said) and request.words == ("everything",):
            raise ResourceError("memory: too little")
        return self.running < self.places

    def join(self, request: Any, *, more: bool = False, cancel: threading.Event | None = None) -> int:
        self.joined += 1
        if isinstance(request, LiveText):
            delivery = Delivery(request.pacing, RATE, more=True)
            self.live[self.joined] = Sentences(request, delivery, deque([] if more else [None]))
            request = request.first
        elif more:
            self.open.add(self.joined)
        self.said[self.joined] = request, 0, Meter(RATE)
        self.log.append(f"join {request.words[0]}")
        return self.joined

    def begun(self, key: int) -> bool:
        return key in self.stepped

    def wants(self, key: int) -> bool:
        request, place, _ = self.said[key]
        return key not in self.live or (place == len(request.words) and not self.live[key].texts)

    def feed(self, key: int, text: str) -> None:
        if not text.strip():
            raise UsageError("text: blank")
        if key in self.live:
            self.live[key].texts.append(text)
            return
        request, place, meter = self.said[key]
        self.said[key] = replace(request, words=(*request.words, *text.split())), place, meter

    def end(self, key: int) -> None:
        self.open.discard(key)
        if key in self.live:
            self.live[key].texts.append(None)

    def step(self) -> list[Event]:
        """As in Session. The words "crash" and "hoard", which lacks memory, end the whole session."""
        if self.gate is not None:
            self.gate.acquire()
        self.log.append("step " + " ".join(one.words[0] for one, _, _ in self.said.values()))
        self.stepped |= self.said.keys()
        events: list[Event] = []
        for key in [key for key in self.said if self._ready(key)]:
            request, place, _ = self.said[key]
            word = request.words[place] if place < len(request.words) else ""
            if word == "crash":
                raise RuntimeError("crashed")
            if word == "hoard":
                raise MemoryError
            try:
                result = self._sentence(key) if key in self.live else self._word(key)
            except SpeechError as error:
                events.append(Failed(key, error))
                self.leave(key)
                continue
            events += [] if result is None else [Part(key, result)]
            if result is not None and result.is_final_chunk:
                self.leave(key)
        return events

    def _word(self, key: int) -> GenerationResult:
        request, place, meter = self.said[key]
        self.said[key] = request, place + 1, meter
        return part(meter, request, place)

    def _sentence(self, key: int) -> GenerationResult | None:
        """The next word of a text that comes; None where the next sentence is read instead."""
        one, (request, place, meter) = self.live[key], self.said[key]
        if place < len(request.words):
            result, delivery = self._word(key), one.delivery
            audio = one.word(result.audio, ends=result.is_final_chunk)
            return replace(
                result, audio=audio, cues=delivery.cues(), finish_reason=None, is_final_chunk=False
            )
        text = one.texts.popleft()
        if text is None:
            last = part(meter, request, place - 1)
            return replace(last, audio=one.delivery.finish(), codes=last.codes[:, :0], cues=())
        following = one.live.next(text)
        if following is not None:
            one.delivery.extend(following.pacing)
            self.said[key] = following, 0, meter
        return None

    def prepare(self) -> None:
        """As in Session."""

    def leave(self, key: int) -> None:
        self.live.pop(key, None)
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
