"""Window sizes of codecs: plain integers, the same for both sides and for every codec."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from tts_core.errors import UsageError
from tts_core.nn.windows import floor_power, growing


@dataclass(frozen=True)
class CodecPolicy:
    """Number of frames that a codec processes at a time. Every policy gives the same result, up to rounding.

    max_frames: most output frames of a window, without its context; bounds the memory.
    first_frames: output frames of a decode's first window, small so that a stream starts early; later windows
    double in size.
    lead: frames given out for one by which windows grow in a stream that shares its steps with others.
    shared: most frames of a window of streams that share calls; their windows have 1, 2, 4, ... frames. None
    for streams that share none.
    Raises UsageError for less than one frame.
    """

    max_frames: int = 256
    first_frames: int = 8
    lead: int = 4
    shared: int | None = None

    def __post_init__(self) -> None:
        for name in ("max_frames", "first_frames", "lead"):
            value = getattr(self, name)
            if value < 1:
                raise UsageError(f"{name}: {value} is not a number of frames; give at least 1")

    @property
    def is_streamed(self) -> bool:
        """True if windows begin small, for a listener."""
        return self.first_frames < self.max_frames

    def decode_cuts(self, frames: int) -> Iterator[tuple[int, int]]:
        """Cut [0, frames) for a streamed decode; the cuts do not depend on where the speech ends."""
        return growing(frames, self.first_frames, self.max_frames)

    def served_stop(self, start: int) -> int:
        """End of the window that begins at `start`, in a stream that shares its steps with others.

        A window is as long as the listener's lead allows: playback has no gap if a second of speech is made
        in at most lead / (lead + 1) seconds. `decode_cuts`, whose windows double, asks for half a second.
        """
        size = min(self.max_frames, self.first_frames + start // self.lead)
        return start + (size if self.shared is None else min(self.shared, floor_power(size)))

    def in_rows(self) -> CodecPolicy:
        """Return the windows of streams that share calls of a causal codec, from their first frame on."""
        return replace(self, first_frames=1, shared=WINDOW)

    def alone(self) -> CodecPolicy:
        """Return the windows of a stream that shares its steps with no other: those of `decode_cuts`."""
        return replace(self, lead=1)

    def in_largest(self) -> CodecPolicy:
        """Return the windows of speech that nobody hears before its end: each is as long as the largest, so
        that they feed less context in all.
        """
        return replace(self, first_frames=self.max_frames)

    def smaller(self) -> Iterator[CodecPolicy]:
        """Yield policies with half the frames, a quarter, and so on, down to the size of the first window."""
        while self.max_frames > self.first_frames:
            self = replace(self, max_frames=max(self.max_frames // 2, self.first_frames))
            yield self

    def even_cuts(self, frames: int) -> Iterator[tuple[int, int]]:
        """Cut [0, frames) into even windows, for an encode or a decode that is not streamed."""
        return growing(frames, self.max_frames, self.max_frames)


def complete(policy: CodecPolicy | None, start: int, frames: int) -> Iterator[tuple[int, int]]:
    """Yield the windows of a served stream, from `start` on, of which all frames are known.

    policy: None has none: a piece is then one window.
    """
    while policy is not None and (stop := policy.served_stop(start)) <= frames:
        yield start, stop
        start = stop


# Calls that streams share have 27 shapes of 1, 2, 4, ... rows and frames, few enough to compile or capture.
# On an H100 a frame of Qwen3's codec takes 0.15 ms in calls of 128 frames, 0.18 in 64, 1.4 in calls of 2
ROWS, WINDOW, CALL = 32, 16, 128  # at most: rows, frames of a row, frames in all
# On a CPU a call of several windows takes longer (three of 18 frames of DAC: 1.04 s against 0.78 s) and may
# round differently: a text's samples would depend on its neighbors by 3e-7
ONE_BY_ONE = ("torch-cpu", "mlx-cpu")


def shared_shapes(rows: int = ROWS) -> list[tuple[int, int]]:
    """List rows and frames of the calls that streams share, the largest first. rows: at most."""
    powers = [1 << power for power in range(ROWS.bit_length())]
    shapes = [(row, frames) for row in powers for frames in powers if frames <= WINDOW]
    fit = [shape for shape in shapes if shape[0] <= rows and math.prod(shape) <= CALL]
    return sorted(fit, key=math.prod, reverse=True)


DEFAULT = CodecPolicy()
# On an H200 windows of 256, 512 and 1,024 frames of DAC take 6.6, 6.2 and 6.0 ms per second of speech; with
# TF32 two minutes take 1.28 GB in windows of 896 frames, 0.93 GB in those of 640, 12.5 GB as a whole. First
# frames and lead are those of windows with context (docs/measured/load.md); streams, which have none, begin
# with 4 frames
LARGEST = {"torch-cuda": CodecPolicy(768, first_frames=5, lead=3)}


def own(backend: str) -> CodecPolicy:
    """Return a backend's default windows, for enough free memory."""
    return LARGEST.get(backend, DEFAULT)


def fitting(takes: Callable[[CodecPolicy], int], backend: str, free: int | None) -> CodecPolicy:
    """Choose the largest of the default windows and smaller ones that need at most half of `free` bytes.

    takes: bytes of a policy's windows. free: None (unknown) gives the default. If nothing fits, the smallest
    windows are returned.
    """
    for policy in (own(backend), *own(backend).smaller()):
        if free is None or takes(policy) <= free // 2:
            break
    return policy
