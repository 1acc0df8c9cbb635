"""Decodes of several streams in one call, by codecs that keep a memory of a stream's frames.

A call has windows of equally many frames, each after equally many: their memories have the same shapes and
positions, so that nothing is padded. On a CPU every window is a call of its own, as in dac_calls.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tts_core.codecs.dac_calls import ONE_BY_ONE
from tts_core.codecs.policy import CodecPolicy
from tts_core.nn.beside import Pending, Then
from tts_core.nn.host import Device

AT_ONCE = 4  # largest windows whose frames one call may have
# From the codes of several streams, (B, Q, F), and their memories, to samples (B, L) and the next memories
DecodeStreams = Callable[[Any, Sequence[Any]], tuple[Any, Sequence[Any]]]


@dataclass(eq=False)
class CodecMemory:
    """The codec's memory of a stream's frames so far, for those that follow.

    kept: by the codec; None at the start.  frames: so far.
    """

    kept: Any = None
    frames: int = 0

    def advance(self, kept: Any, frames: int) -> None:
        """Take the memory after further frames."""
        self.kept, self.frames = kept, self.frames + frames


class StreamWindow(Protocol):
    """The next frames of a stream."""

    @property
    def codes(self) -> np.ndarray:
        """(Q, F) int32."""
        ...

    @property
    def memory(self) -> CodecMemory:
        """The stream's memory."""
        ...


def most_fed(policy: CodecPolicy, tail: int, *, backend: str) -> int:
    """Count the frames to feed in one call; 0, where every window is a call of its own.

    tail: frames of a stream that are fed before a window.
    """
    return 0 if backend in ONE_BY_ONE else AT_ONCE * (policy.max_frames + tail)


def copies(texts: int) -> int:
    """Count the memories that a call of several streams has besides theirs: stacked, after it, taken apart.

    Windows grow with the frames before them: those after a full memory are so long that at most three times
    AT_ONCE share a call.
    """
    return 3 * min(texts, 3 * AT_ONCE) if texts > 1 else 0


def fed_together(texts: int, frames: int, policy: CodecPolicy, tail: int, *, backend: str) -> int:
    """Count the frames of the largest call of so many streams. frames: of a largest window and tail."""
    return max(frames, min(texts * frames, most_fed(policy, tail, backend=backend)))


def split(
    windows: Sequence[StreamWindow], *, most: int, tail: int, apart: Collection[int] = ()
) -> list[list[int]]:
    """Divide windows into calls, by their places. A stream's second window waits for the memory of its first.

    most, tail: as in `most_fed`.
    apart: places of windows that share no call.
    """
    calls: list[list[int]] = []
    alike: dict[tuple[int, int], list[int]] = {}
    begun = set[int]()
    for place, window in enumerate(windows):
        memory, count = window.memory, window.codes.shape[1]
        if count and id(memory) not in begun and place not in apart:
            alike.setdefault((count, memory.frames), []).append(place)
        else:
            calls.append([place])
        begun.add(id(memory))
    for (count, _), places in alike.items():
        rows = max(1, most // (count + tail))
        calls += [places[start : start + rows] for start in range(0, len(places), rows)]
    return calls


def launch(host: Device, decode: DecodeStreams, windows: Sequence[StreamWindow]) -> Pending[list[np.ndarray]]:
    """Begin to decode the windows of one call to samples, (L,) float32 each; their memories advance.

    They stay as they are if this raises an error.
    """
    kept: Sequence[Any] = ()
    codes, memories = np.stack([one.codes for one in windows]), [one.memory for one in windows]

    def work() -> list[Any]:
        nonlocal kept
        samples, kept = decode(host.to_device(codes), [memory.kept for memory in memories])
        return [samples]

    begun = host.launch(work)
    for memory, one in zip(memories, kept, strict=True):
        memory.advance(one, codes.shape[2])
    return Then(begun, lambda made: [row.astype(np.float32) for row in made[0]])
