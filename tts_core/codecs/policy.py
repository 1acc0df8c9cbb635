"""How a codec is cut into windows: plain integers, the same for both sides and for every codec."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from tts_core.errors import UsageError
from tts_core.nn.windows import growing


@dataclass(frozen=True)
class CodecPolicy:
    """How many frames a codec works on at a time. The result is the same for every policy, up to rounding.

    max_frames: the most that a window gives, its context not counted; it bounds the memory.
    first_frames: what the first window of a decode gives, so that a stream starts early; the sizes double
    from there.
    Raises UsageError for less than one frame.
    """

    max_frames: int = 256
    first_frames: int = 8

    def __post_init__(self) -> None:
        for name in ("max_frames", "first_frames"):
            value = getattr(self, name)
            if value < 1:
                raise UsageError(f"{name}: {value} is not a number of frames; give at least 1")

    def decode_cuts(self, frames: int) -> Iterator[tuple[int, int]]:
        """[0, frames) as a decode cuts it; the cuts do not depend on where the speech ends."""
        return growing(frames, self.first_frames, self.max_frames)

    def even_cuts(self, frames: int) -> Iterator[tuple[int, int]]:
        """[0, frames) as an encode cuts it, or a decode whose first piece nobody waits for."""
        return growing(frames, self.max_frames, self.max_frames)


DEFAULT = CodecPolicy()
# On an H200 a window of 256 frames takes 9 % longer per frame than a whole decode, besides its context
LARGEST = {"torch-cuda": CodecPolicy(384)}


def own(backend: str) -> CodecPolicy:
    """The windows of a backend that has room for them."""
    return LARGEST.get(backend, DEFAULT)


def smaller(policy: CodecPolicy) -> Iterator[CodecPolicy]:
    """Policies with half the frames, a quarter, and so on, down to windows no larger than the first."""
    while policy.max_frames > policy.first_frames:
        policy = replace(policy, max_frames=max(policy.max_frames // 2, policy.first_frames))
        yield policy


def fitting(takes: Callable[[CodecPolicy], int], backend: str, free: int | None) -> CodecPolicy:
    """The largest of a backend's own windows and `smaller` ones that take at most half of `free` bytes.

    takes: bytes of a policy's windows. free: None is unknown, and gives the backend's own; where nothing
    fits, the smallest are as good as any.
    """
    for policy in (own(backend), *smaller(own(backend))):
        if free is None or takes(policy) <= free // 2:
            break
    return policy
