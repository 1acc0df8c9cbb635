"""How a codec is cut into windows: plain integers, the same for both sides and for every codec."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tts_core.windows import growing


@dataclass(frozen=True)
class CodecPolicy:
    """How many frames a codec works on at a time. The result is the same for every policy, up to rounding.

    max_frames: the most that a window gives, its context not counted; it bounds the memory.
    first_frames: what the first window of a decode gives, so that a stream starts early; the sizes double
    from there.
    """

    max_frames: int = 256
    first_frames: int = 8

    def __post_init__(self) -> None:
        for name in ("max_frames", "first_frames"):
            value = getattr(self, name)
            if value < 1:
                raise ValueError(f"{name}: {value} is not a number of frames; give at least 1")

    def decode_cuts(self, frames: int) -> Iterator[tuple[int, int]]:
        """[0, frames) as a decode cuts it; the cuts do not depend on where the speech ends."""
        return growing(frames, self.first_frames, self.max_frames)

    def encode_cuts(self, frames: int) -> Iterator[tuple[int, int]]:
        """[0, frames) as an encode cuts it: nobody waits for a first piece."""
        return growing(frames, self.max_frames, self.max_frames)


DEFAULT = CodecPolicy()
