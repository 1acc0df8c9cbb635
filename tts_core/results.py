"""What generation takes and gives, the same on both sides."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np


@dataclass(frozen=True)
class Prompt:
    """Reference speech whose voice to take.

    audio: (L,) float32 samples at the model's sample rate, or codes: (Q, T) int32; exactly one of the two.
    transcript: what is said in it, for models that read it.
    """

    audio: np.ndarray | None = None
    transcript: str | None = None
    codes: np.ndarray | None = None

    def __post_init__(self) -> None:
        if (self.audio is None) == (self.codes is None):
            raise ValueError("prompt: give audio or codes, exactly one of them")


@dataclass(frozen=True)
class SpokenPiece:
    """A piece of a long text, and what it takes to speak it again by itself: `text`, `prompt`, `seed` and
    `max_frames`, in one piece.

    text: as it was read; words without a tag go on in the prompt's last turn.  audio: (L,) float32, before it
    was joined to the others.  codes: (Q, T) int32.
    """

    text: str
    prompt: Prompt | None
    seed: int | None
    max_frames: int
    codes: np.ndarray
    audio: np.ndarray
    finish_reason: Literal["stop", "length"]


@dataclass(frozen=True)
class GenerationResult:
    """One piece of speech, or the whole of it.

    audio: (L,) float32 NumPy samples in [-1, 1].    codes: (Q, T) int32, the frames that `audio` was decoded
    from.
    seed: what the random numbers came from; None where the caller gave the numbers.
    finish_reason: "stop" where the model ended the speech, "length" where max_frames did, None on a piece
    before the last.
    token_count: decoder rows computed for this text so far.
    real_time_factor: processing time / audio time so far; below 1 is faster than real time.
    time_to_first_audio: seconds from the call to the first decoded piece.
    peak_memory_usage: bytes: of the device's allocator where it has one, of the process otherwise.
    segment_idx: 0, 1, ... over the pieces of a stream.
    stage_seconds: seconds spent so far in each stage of a model that has several, by name, in their order.
    pieces: those of a long text that ended here, in order, of models that tell them.
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

    @property
    def samples(self) -> int:
        """Number of samples in `audio`."""
        return len(self.audio)

    @property
    def audio_seconds(self) -> float:
        """Length of `audio` in seconds."""
        return len(self.audio) / self.sample_rate


def join(pieces: Sequence[GenerationResult]) -> GenerationResult:
    """The pieces of one stream as one result."""
    last = pieces[-1]
    audio = np.concatenate([piece.audio for piece in pieces])
    return replace(
        last,
        audio=audio,
        codes=np.concatenate([piece.codes for piece in pieces], axis=1),
        real_time_factor=real_time_factor(last.processing_time_seconds, len(audio), last.sample_rate),
        segment_idx=0,
        pieces=tuple(spoken for piece in pieces for spoken in piece.pieces),
    )


def real_time_factor(seconds: float, samples: int, sample_rate: int) -> float:
    """Processing time over audio time: below 1 is faster than real time, infinite where there is no audio."""
    return seconds * sample_rate / samples if samples else math.inf
