"""Results of generation, and a meter of time and samples."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from tts_core.prompt import Prompt
from tts_core.text.captions import Captions, Cue, Word

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, eq=False)
class SpokenPiece:
    """A spoken piece of a long text. Its `text`, `prompt`, `seed` and `max_frames` speak it again by itself.

    text: as read; words without a tag continue the prompt's last turn.
    audio: (L,) float32, before joining.
    codes: (Q, T) int32.
    """

    text: str
    prompt: Prompt | None
    seed: int | None
    max_frames: int
    codes: np.ndarray
    audio: np.ndarray
    finish_reason: Literal["stop", "length"]


@dataclass(frozen=True, eq=False, repr=False)
class GenerationResult:
    """One part of the speech, or all of it.

    audio: (L,) float32 NumPy samples in [-1, 1].
    codes: (Q, T) int32, the frames that `audio` was decoded from, before a change of speed and pauses.
    seed: of the random numbers; None if the caller gave the numbers.
    finish_reason: "stop" if the model ended the speech, "length" if max_frames did, None for a part before
    the last.
    token_count: decoder rows computed for this text so far.
    real_time_factor: processing time / audio time so far; below 1 is faster than real time.
    time_to_first_audio: seconds from the call to the first decoded piece.
    peak_memory_usage: bytes of the device's allocator if it has one, else of the process.
    segment_idx: 0, 1, ... over the parts of a stream.
    stage_seconds: seconds spent so far in each stage of a model with several, by name, in order.
    pieces: pieces of a long text that ended in this part, in order; empty for models that do not report them.
    cues: what the turns of the pieces that ended here say, and when, in seconds from the start of the whole
    speech. Without times of words, a turn ends in the pause that its text leads to expect.
    words: timed since the part before, in the same seconds; empty for models that give no times.
    """

    audio: np.ndarray
    sample_rate: int
    codes: np.ndarray
    seed: int | None
    finish_reason: Literal["stop", "length"] | None
    token_count: int
    real_time_factor: float
    time_to_first_audio: float
    processing_time_seconds: float
    peak_memory_usage: int
    segment_idx: int = 0
    is_final_chunk: bool = True
    stage_seconds: Mapping[str, float] = field(default_factory=dict)
    pieces: tuple[SpokenPiece, ...] = ()
    cues: tuple[Cue, ...] = ()
    words: tuple[Word, ...] = ()

    @property
    def samples(self) -> int:
        """Number of samples in `audio`."""
        return len(self.audio)

    @property
    def audio_seconds(self) -> float:
        """Length of `audio` in seconds."""
        return len(self.audio) / self.sample_rate

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write `audio` in the format of the suffix; errors as in `tts_core.audio.files.write_audio`."""
        from tts_core.audio.files import write_audio

        write_audio(path, self.audio, self.sample_rate)

    def captions(self) -> Captions:
        """Its cues as captions: `result.captions().save("speech.srt")`, or .vtt."""
        return Captions(self.cues)

    def __repr__(self) -> str:
        return (
            f"GenerationResult({self.audio_seconds:.2f} s at {self.sample_rate} Hz, seed {self.seed}, "
            f"{self.finish_reason}, RTF {self.real_time_factor:.2f})"
        )


def merge(pieces: Sequence[GenerationResult]) -> GenerationResult:
    """Join the parts of a stream into one result."""
    last = pieces[-1]
    audio = np.concatenate([piece.audio for piece in pieces])
    return replace(
        last,
        audio=audio,
        codes=np.concatenate([piece.codes for piece in pieces], axis=1),
        real_time_factor=real_time_factor(last.processing_time_seconds, len(audio), last.sample_rate),
        segment_idx=0,
        pieces=tuple(spoken for piece in pieces for spoken in piece.pieces),
        cues=tuple(cue for piece in pieces for cue in piece.cues),
        words=tuple(word for piece in pieces for word in piece.words),
    )


def real_time_factor(seconds: float, samples: int, sample_rate: int) -> float:
    """Divide processing time by audio time: below 1 is faster than real time, infinite without audio."""
    return seconds * sample_rate / samples if samples else math.inf


class Meter:
    """A meter of time and samples from its creation. stages: names, in the order of the results."""

    def __init__(self, sample_rate: int, stages: Sequence[str] = ()):
        self.started, self.sample_rate = time.perf_counter(), sample_rate
        self.stage_seconds = dict.fromkeys(stages, 0.0)
        self.seconds, self.first_seconds, self.samples = 0.0, 0.0, 0

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Add the time inside the block to a stage; the block must read its results from the device."""
        entered = time.perf_counter()
        try:
            yield
        finally:
            self.stage_seconds[name] += time.perf_counter() - entered

    def add(self, samples: int) -> None:
        """Count new samples."""
        self.seconds = time.perf_counter() - self.started
        if samples:
            self.first_seconds = self.first_seconds or self.seconds
        self.samples += samples

    @property
    def lead(self) -> float:
        """Seconds of sound that are left to one who hears all from the first on; negative after a gap."""
        played = time.perf_counter() - self.started - self.first_seconds if self.samples else 0.0
        return self.samples / self.sample_rate - played

    def result(
        self,
        audio: np.ndarray,
        codes: np.ndarray,
        *,
        seed: int | None,
        token_count: int,
        peak_bytes: int,
        segment_idx: int = 0,
        finish_reason: FinishReason | None,
        cues: Sequence[Cue] = (),
        words: Sequence[Word] = (),
    ) -> GenerationResult:
        """Build a part of a stream with the times of the last `add`. audio: (L,) float32, codes: (Q, T).

        Stages of pieces that ran at once share the time that passed.
        finish_reason: None before the last part.
        """
        spent = sum(self.stage_seconds.values())
        share = 1.0 if spent <= self.seconds else math.floor(1e6 * self.seconds / spent) / 1e6
        return GenerationResult(
            audio=audio,
            sample_rate=self.sample_rate,
            codes=codes,
            seed=seed,
            finish_reason=finish_reason,
            token_count=token_count,
            real_time_factor=real_time_factor(self.seconds, self.samples, self.sample_rate),
            time_to_first_audio=self.first_seconds,
            processing_time_seconds=self.seconds,
            peak_memory_usage=peak_bytes,
            segment_idx=segment_idx,
            is_final_chunk=finish_reason is not None,
            stage_seconds={name: share * seconds for name, seconds in self.stage_seconds.items()},
            cues=tuple(cues),
            words=tuple(words),
        )
