"""Options of Parrot's generation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

from tts_core.options import check, option


@dataclass(frozen=True)
class ParrotOptions:
    """Options of one generation."""

    seed: int | None = option(0, "Shifts every code.", low=0, high=2**64 - 1)
    frames_per_word: int = option(12, "Codec frames for a word.", low=1, high=1000)
    max_frames: int | None = option(
        None, "Stop after this many codec frames.", flag=None, low=1, high=10_000_000
    )
    speed: float = option(1.0, "Speed of the speech, its pitch unchanged.", low=0.5, high=2)

    def __post_init__(self) -> None:
        check(self)


class ParrotChanges(TypedDict, total=False):
    """The fields of ParrotOptions as keyword arguments."""

    seed: int | None
    frames_per_word: int
    max_frames: int | None
    speed: float
