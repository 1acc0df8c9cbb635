"""Pipelines without networks: every text is spoken word by word, and the sound is the words' numbers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tts_core.errors import CancelledError, GenerationError, UsageError
from tts_core.results import GenerationResult, Meter

RATE = 1000
SAMPLES = 250  # of a word


@dataclass(frozen=True)
class Said:
    """A checked request."""

    words: tuple[str, ...]
    seed: int = 0


def sound(word: str) -> np.ndarray:
    """(L,) float32, the same for the same word."""
    random = np.random.default_rng(list(word.encode()))
    return random.uniform(-0.5, 0.5, SAMPLES).astype(np.float32)


def part(meter: Meter, request: Said, place: int) -> GenerationResult:
    """Speak a word. The word "choke" fails."""
    word = request.words[place]
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
        finish_reason="stop" if place == len(request.words) - 1 else None,
    )


class Talker:
    """A pipeline that speaks one request at a time. threads: that called it, in order."""

    sample_rate = RATE

    def __init__(self) -> None:
        self.threads: list[int] = []

    def request(self, text: str, options: Any = None, prompt: Any = None) -> Said:
        """Check a text."""
        if not text.split():
            raise UsageError("text: empty; there is nothing to say")
        return Said(tuple(text.split()), options or 0)

    def speak(
        self, request: Said, *, progress: Any = None, cancel: threading.Event | None = None
    ) -> Iterator[GenerationResult]:
        """Stream a request."""
        meter = Meter(RATE)
        for place in range(len(request.words)):
            self.threads.append(threading.get_ident())
            if cancel is not None and cancel.is_set():
                raise CancelledError("generation: cancelled")
            yield part(meter, request, place)
