"""Requests that are spoken one after the other as one speech."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np

from tts_core.audio.joining import PAUSE, Joiner
from tts_core.errors import UsageError
from tts_core.live.voices import Voices
from tts_core.nn.noise import piece_seed
from tts_core.pipeline import PromptLike
from tts_core.results import FinishReason, GenerationResult, real_time_factor
from tts_core.text import breaks
from tts_core.text.arriving import count_spoken
from tts_core.text.captions import Cue, Word

Ask = Callable[[str, Any, PromptLike], Any]  # text, options, prompt → request


class Chain:
    """A speech of several requests: builds each, and turns their results into parts of the whole.

    Between two pieces is the usual pause of a long text, or the one that the text asks for. Each piece has a
    seed of its own, derived from the first.
    ask: checks a text and builds its request, as Pipeline.request.  options: of the model.
    Raises UsageError for options that one piece cannot share with the next: max_frames, noise.
    """

    def __init__(self, ask: Ask, options: Any, voices: Voices):
        names = {field.name for field in fields(options)}
        for name, other in (("max_frames", "max_seconds"), ("noise", "seed")):
            if name in names and getattr(options, name) is not None:
                raise UsageError(f"{name}: not for text that arrives in pieces; give {other}")
        self.seed: int | None = None
        if "seed" in names:
            self.seed = secrets.randbits(32) if options.seed is None else options.seed
        self.speed = options.speed if "speed" in names else 1.0
        self._most: float | None = None  # seconds of the whole
        if "max_seconds" in names and options.max_seconds is not None:
            self._most = options.max_seconds / self.speed
            options = replace(options, max_seconds=None)
        self._ask, self._options, self._voices = ask, options, voices
        self._place = self._segment = self._rows = 0
        self._seconds = 0.0  # of computing, up to the piece under way
        self._sounding = 0.0  # seconds to the first sound
        self._request: Any = None
        self._codes: list[np.ndarray] = []  # of the piece under way
        self._joiner: Joiner | None = None
        self._known = np.zeros(0, np.float32)  # sound that is final and not given out
        self._start = self._samples = self._given = 0  # of the piece under way; taken; given out
        self._tail = 0.0  # seconds of silence at the end
        self._is_cut = False  # a piece ended by its length
        self._last: GenerationResult | None = None

    @property
    def is_full(self) -> bool:
        """True once max_seconds are reached; `finish` then follows."""
        return self._last is not None and self._left(self._last.sample_rate) == 0

    def next(self, text: str) -> Any:
        """Build the request of the next piece, once the one before is spoken.

        Returns None for a text of pauses or marks only, after the last piece. Raises UsageError.
        """
        if self._place and not count_spoken(text):
            self._tail += sum(silence or 0 for silence in breaks.read("text", text).silences)
            return None
        said, prompt = self._voices.next(text)
        options = self._options
        if self.seed is not None:
            options = replace(options, seed=piece_seed(self.seed, self._place))
        before, self._request = self._request, self._ask(said, options, prompt)
        self._place += 1
        if self._joiner is not None:
            asked = before.pacing.silences[-1], self._request.pacing.silences[0]
            self._take(np.zeros(0, np.float32), PAUSE / self.speed if asked == (None, None) else 0.0)
        self._start = self._samples
        return self._request

    def part(self, result: GenerationResult) -> GenerationResult:
        """Turn the next part of the piece under way into one of the whole, which has no last part yet."""
        if self._joiner is None:
            self._joiner = Joiner(result.sample_rate)
        self._take(result.audio)
        self._codes.append(result.codes)
        self._sounding = self._sounding or result.time_to_first_audio
        start = self._start / result.sample_rate
        self._last = replace(
            result,
            seed=self.seed,
            token_count=self._rows + result.token_count,
            processing_time_seconds=self._seconds + result.processing_time_seconds,
            time_to_first_audio=self._sounding,
            cues=tuple(_later(cue, start) for cue in result.cues),
            words=tuple(_word_later(word, start) for word in result.words),
        )
        if result.is_final_chunk:
            self._voices.spoken(np.concatenate(self._codes, axis=1))
            self._codes = []
            self._is_cut |= result.finish_reason == "length"
            self._rows, self._seconds = self._last.token_count, self._last.processing_time_seconds
        return self._part(self._last, None)

    def finish(self) -> GenerationResult:
        """Return the last part: what was kept for a fade, and the silence that the text ends with."""
        assert self._last is not None, "a piece was spoken"
        assert self._joiner is not None
        silence = np.zeros(round(self._tail * self._last.sample_rate), np.float32)
        self._known = np.concatenate([self._known, self._joiner.finish(), silence])
        rest = replace(self._last, codes=self._last.codes[:, :0], cues=(), words=(), pieces=())
        return self._part(rest, "length" if self.is_full or self._is_cut else "stop")

    def _take(self, samples: np.ndarray, pause: float | None = None) -> None:
        """Add sound, (L,). pause: seconds of silence after it, where it ends a piece."""
        assert self._joiner is not None
        sound = self._joiner.add(samples, last_of_piece=pause is not None, pause_seconds=pause)
        self._samples += len(samples) + round((pause or 0) * self._joiner.sample_rate)
        self._known = np.concatenate([self._known, sound])

    def _part(self, part: GenerationResult, reason: FinishReason | None) -> GenerationResult:
        """Give out what is known, up to max_seconds."""
        left = self._left(part.sample_rate)
        audio, self._known = self._known[:left], np.zeros(0, np.float32)
        self._given += len(audio)
        self._segment += 1
        return replace(
            part,
            audio=audio,
            real_time_factor=real_time_factor(part.processing_time_seconds, self._given, part.sample_rate),
            segment_idx=self._segment - 1,
            finish_reason=reason,
            is_final_chunk=reason is not None,
        )

    def _left(self, sample_rate: int) -> int | None:
        """Samples up to max_seconds; None for no such limit."""
        return None if self._most is None else math.ceil(self._most * sample_rate) - self._given


def _word_later(word: Word, seconds: float) -> Word:
    end = None if word.end is None else word.end + seconds
    return word._replace(start=word.start + seconds, end=end)


def _later(cue: Cue, seconds: float) -> Cue:
    words = tuple(_word_later(word, seconds) for word in cue.words)
    return replace(cue, start=cue.start + seconds, end=cue.end + seconds, words=words)
