"""A pipeline without networks that speaks a text word by word, with cues and times of words."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tts_core.audio.delivery import Delivery, Pacing
from tts_core.errors import CancelledError
from tts_core.results import GenerationResult, Meter
from tts_core.text import breaks
from tts_core.text.captions import Word
from tts_core.text.checks import check_words

RATE, WORD = 1000, 100  # Hz; samples of a word


@dataclass(frozen=True)
class Options:
    """Of the speaker. most: words of a text after which it stops."""

    seed: int | None = None
    max_seconds: float | None = None
    max_frames: int | None = None
    noise: Any = None
    speed: float = 1.0
    most: int = 1000


@dataclass(frozen=True)
class Request:
    """A checked text."""

    text: str
    options: Options
    prompt: Any
    pacing: Pacing
    words: tuple[str, ...]


@dataclass
class Speaker:
    """asked: its requests.  said: words so far."""

    asked: list[Request] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    sample_rate: int = RATE

    def request(self, text: str, options: Options, prompt: Any = None) -> Request:
        """Check a text of one part."""
        check_words("text", text)
        found = breaks.read("text", text)
        [part], silences = found.cut(lambda part: [part])
        words = tuple(part.split()[: options.most])
        self.asked.append(Request(text, options, prompt, Pacing((part,), silences, options.speed), words))
        return self.asked[-1]

    def speak(
        self, request: Request, *, progress: Any = None, cancel: threading.Event | None = None
    ) -> Iterator[GenerationResult]:
        """Speak word by word; the sound depends on the word and the seed."""
        meter, delivery = Meter(RATE), Delivery(request.pacing, RATE)
        for place, word in enumerate(request.words):
            if cancel is not None and cancel.is_set():
                raise CancelledError("generation: cancelled")
            self.said.append(word)
            random = np.random.default_rng([*word.encode(), request.options.seed or 0])
            delivery.time([Word(word, place * WORD / RATE)])
            sound = delivery.add(random.uniform(-0.5, 0.5, WORD).astype(np.float32))
            last = place == len(request.words) - 1
            if last:
                sound = np.concatenate([sound, delivery.finish()])
            meter.add(len(sound))
            reason = "length" if len(request.words) == request.options.most else "stop"
            yield meter.result(
                sound,
                np.full((2, 3), place, np.int32),
                seed=request.options.seed,
                token_count=place + 1,
                peak_bytes=0,
                segment_idx=place,
                finish_reason=reason if last else None,
                cues=delivery.cues(),
                words=delivery.words(),
            )
