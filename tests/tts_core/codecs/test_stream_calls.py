"""Windows of several streams in one call: which share one, and what becomes of their memories."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tts_core.codecs.policy import CodecPolicy
from tts_core.codecs.stream_calls import (
    AT_ONCE,
    CodecMemory,
    copies,
    fed_together,
    launch,
    most_fed,
    split,
)
from tts_core.memory.terms import BACKENDS
from tts_core.nn.beside import Done, Pending


@dataclass(eq=False)
class Window:
    codes: np.ndarray
    memory: CodecMemory


def window(frames: int, memory: CodecMemory) -> Window:
    return Window(np.full((3, frames), memory.frames, np.int32), memory)


def test_only_windows_of_one_length_at_one_frame_share_a_call() -> None:
    at = [0, 0, 4, 4, 4, 0, 4]
    lengths = [2, 2, 2, 3, 2, 2, 3]
    windows = [window(count, CodecMemory(None, start)) for count, start in zip(lengths, at, strict=True)]
    assert sorted(split(windows, most=100, tail=5)) == [[0, 1, 5], [2, 4], [3, 6]]
    assert sorted(split(windows, most=100, tail=5, apart={0, 3})) == [[0], [1, 5], [2, 4], [3], [6]]
    assert sorted(split(windows, most=0, tail=5)) == [[place] for place in range(7)]


def test_a_call_feeds_at_most_so_many_frames() -> None:
    windows = [window(6, CodecMemory()) for _ in range(7)]
    assert split(windows, most=32, tail=4) == [[0, 1, 2], [3, 4, 5], [6]]
    assert split(windows, most=9, tail=4) == [[place] for place in range(7)], "one at least"


def test_a_streams_second_window_waits_for_the_memory_of_its_first() -> None:
    """Also if the first is a call of its own, or ends a piece without frames."""
    first, second, third = CodecMemory(), CodecMemory(), CodecMemory()
    windows = [window(2, first), window(2, first), window(2, second), window(0, third), window(2, third)]
    assert sorted(split(windows, most=100, tail=0)) == [[0, 2], [1], [3], [4]]
    assert sorted(split(windows, most=100, tail=0, apart={0})) == [[0], [1], [2], [3], [4]]


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_window_is_a_call_on_a_cpu(backend: str) -> None:
    most = 0 if backend.endswith("cpu") else AT_ONCE * 70
    assert most_fed(CodecPolicy(64), 6, backend=backend) == most


@pytest.mark.parametrize("backend", ["torch-cuda", "torch-cpu"])
@pytest.mark.parametrize("before", [0, 5, 300])
def test_the_plan_bounds_calls_and_the_memories_that_they_join(backend: str, before: int) -> None:
    """For the windows of streams, and even ones, of Mimi and of Qwen3-TTS's codec: frames of a window's tail,
    and those after which a memory is full.
    """
    policy = CodecPolicy(64, first_frames=2)
    for tail, full in ((4, 125), (10, 71)):
        most = most_fed(policy, tail, backend=backend)
        for texts in (2, 3, 40):
            start = 0
            while start < 400:
                for stop in (policy.served_stop(start), start + 64):
                    memories = [CodecMemory(None, before + start) for _ in range(texts)]
                    asked = [window(stop - start, memory) for memory in memories]
                    largest = max(map(len, split(asked, most=most, tail=tail)))
                    assert largest * (stop - start + tail) <= fed_together(
                        texts, 64 + tail, policy, tail, backend=backend
                    )
                    kept = min(start, full) / full  # of a full memory
                    assert largest == 1 or 3 * largest * kept <= copies(texts)
                start = policy.served_stop(start)


class Host:
    """A host whose arrays are NumPy's."""

    error: Exception | None = None

    def to_device(self, array: np.ndarray) -> np.ndarray:
        return array

    def launch(self, work: Callable[[], Sequence[Any]]) -> Pending[list[np.ndarray]]:
        made = [*work()]
        if self.error is not None:
            raise self.error
        return Done(made)


def test_each_stream_gets_its_samples_and_its_memory() -> None:
    def decode(codes: np.ndarray, memories: Sequence[Any]) -> tuple[np.ndarray, list[Any]]:
        assert codes.shape == (3, 3, 2)
        return codes.sum(axis=1) * np.array(memories)[:, None], [10 * each for each in memories]

    host: Any = Host()
    memories = [CodecMemory(kept, 4) for kept in (1, 2, 3)]
    windows = [window(2, memory) for memory in memories]
    for place, made in enumerate(launch(host, decode, windows).take()):
        assert made.dtype == np.float32
        assert made.tolist() == [12 * (place + 1)] * 2
    assert [(memory.kept, memory.frames) for memory in memories] == [(10, 6), (20, 6), (30, 6)]
    host.error = MemoryError()
    with pytest.raises(MemoryError):
        launch(host, lambda codes, kept: (codes, [0, 0, 0]), windows)
    assert [(memory.kept, memory.frames) for memory in memories] == [(10, 6), (20, 6), (30, 6)]
