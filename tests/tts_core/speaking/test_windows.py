"""Windows decoded beside the steps: their order, their number at once, and what cannot be decoded."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.hosts import LateHost
from tts_core.errors import CancelledError, GenerationError, ResourceError
from tts_core.speaking.windows import AT_ONCE, Due, WindowQueue, next_call


class Launch:
    """A launch of the test's own. `ready` once the test says so."""

    def __init__(self, ones: Sequence[int]):
        self.ones, self.is_ready, self.is_taken = ones, False, False
        self.error: Exception | None = None

    def ready(self) -> bool:
        return self.is_ready

    def take(self) -> list[int]:
        self.is_taken = True
        if self.error is not None:
            raise self.error
        return [10 * one for one in self.ones]


class Stream:
    """Launches, and calls that were made at once. refuses: launches that lack memory."""

    def __init__(self) -> None:
        self.launches: list[Launch] = []
        self.decoded: list[list[int]] = []
        self.refuses = 0

    def launch(self, ones: Sequence[int]) -> Launch:
        if self.refuses:
            self.refuses -= 1
            raise MemoryError
        self.launches.append(Launch([*ones]))
        return self.launches[-1]

    def decode(self, ones: Sequence[int]) -> list[int]:
        self.decoded.append([*ones])
        if 13 in ones:
            raise GenerationError("generation: exactly zero")
        return [10 * one for one in ones]


def oldest(ones: Sequence[int], wait: bool) -> list[int]:
    return [0]


def opened(stream: Stream, **how: object) -> WindowQueue[int, int]:
    return WindowQueue(LateHost(), stream.decode, launch=stream.launch, **{"choose": oldest, **how})  # type: ignore[arg-type]


def test_windows_come_in_order_and_a_few_run_at_once() -> None:
    stream = Stream()
    queue = opened(stream)
    queue.add([*range(AT_ONCE + 2)])
    queue.fail(9, ValueError("broken"))
    assert queue.ended(wait=False) == []
    assert len(stream.launches) == AT_ONCE
    stream.launches[1].is_ready = True
    assert queue.ended(wait=False) == [], "the first is not there"
    stream.launches[0].is_ready = True
    assert queue.ended(wait=False) == [(0, 0), (1, 10)]
    assert len(stream.launches) == AT_ONCE + 2
    assert queue.ended(wait=True) == [(2, 20)], "it waits for one"
    for launch in stream.launches:
        launch.is_ready = True
    *found, (last, error) = queue.ended(wait=False)
    assert [one for one, _ in found] == [3, 4]
    assert (last, str(error)) == (9, "broken")
    assert queue.ended(wait=True) == []


def test_windows_of_others_are_given_out_before_one_that_waits() -> None:
    """Odd windows are of one request, even ones of another."""
    stream = Stream()
    queue = opened(stream, owner=lambda one: one % 2, choose=lambda ones, wait: [ones.index(max(ones))])
    queue.add([0, 2, 3])
    queue.fail(5, ValueError("broken"))
    queue.fail(4, ValueError("broken"))
    assert queue.ended(wait=False) == []
    assert [launch.ones for launch in stream.launches] == [[3], [2], [0]]
    stream.launches[0].is_ready = True
    assert [one for one, _ in queue.ended(wait=False)] == [3, 5]
    for launch in stream.launches:
        launch.is_ready = True
    assert [one for one, _ in queue.ended(wait=False)] == [0, 2, 4]


def test_windows_that_wait_share_a_launch() -> None:
    stream = Stream()

    def choose(ones: Sequence[int], wait: bool) -> list[int]:
        return [place for place, one in enumerate(ones) if one % 2 == ones[0] % 2]

    queue = opened(stream, choose=choose)
    for one in range(AT_ONCE):
        queue.add([one])
        assert queue.ended(wait=False) == []
    for one in (10, 11, 12):
        queue.add([one])
        assert queue.ended(wait=False) == []
    for launch in stream.launches:
        launch.is_ready = True
    assert queue.ended(wait=False) == [(0, 0), (1, 10), (2, 20)]
    assert [launch.ones for launch in stream.launches][AT_ONCE:] == [[10, 12], [11]]


def test_windows_that_wait_for_others() -> None:
    """Until the queue is to wait for one at least."""
    stream = Stream()

    def choose(ones: Sequence[int], wait: bool) -> Sequence[int]:
        return range(len(ones)) if wait or len(ones) >= 3 else ()

    queue = opened(stream, choose=choose)
    for one in (1, 2):
        queue.add([one])
        assert queue.ended(wait=False) == []
    assert queue.is_busy
    assert queue.ended(wait=True) == [(1, 10), (2, 20)]
    queue.add([4, 5])
    assert queue.ended(wait=False) == []
    queue.add([6])
    queue.ended(wait=False)
    assert [launch.ones for launch in stream.launches] == [[1, 2], [4, 5, 6]]


CALLS = ([0, 1], [2, 3, 4], [5])


def due(**leads: float) -> list[Due]:
    """Six windows of a second, whose listeners have three left, or others. w2=0.5: the third."""
    return [Due(leads.get(f"w{place}", 3.0), 1.0, is_last=False) for place in range(6)]


def chosen(windows: Sequence[Due], most: int = 4, *, can_wait: bool = True) -> Sequence[int]:
    return next_call(windows, CALLS, [most] * len(CALLS), can_wait=can_wait)


def test_what_would_come_late_goes_first() -> None:
    assert chosen(due(w4=0.9, w5=0.5)) == [5]
    assert chosen(due(w4=0.9, w5=1.0)) == [2, 3, 4]
    assert chosen(due(w1=-2.0, w5=0.0)) == [0, 1], "after a gap before the first of a request"
    assert chosen(due(w1=0.0, w5=0.0), most=2) == [0, 1], "the oldest of equal ones"


def test_full_rows_go_before_small_ones() -> None:
    assert chosen(due(), most=2) == [2, 3, 4]
    assert chosen(due(), can_wait=False) == [2, 3, 4]
    assert chosen(due(), most=1) == [2, 3, 4]


def test_others_wait() -> None:
    assert chosen(due()) == ()
    assert next_call([], [], [], can_wait=False) == ()
    last = due()
    last[5] = Due(9.0, 1.0, is_last=True)
    assert chosen(last) == [5]


def test_steps_wait_once_too_many_windows_are_due() -> None:
    stream = Stream()
    queue = opened(stream, most=2)
    queue.add([*range(AT_ONCE + 5)])
    assert [one for one, _ in queue.ended(wait=False)] == [0, 1, 2]
    assert len(stream.launches) == AT_ONCE + 3


def test_windows_of_requests_that_left_are_dropped() -> None:
    stream, left = Stream(), set[int]()
    queue = opened(stream, is_wanted=lambda one: one not in left)
    queue.add([*range(AT_ONCE + 2)])
    assert queue.ended(wait=False) == []
    left |= {1, AT_ONCE}
    assert queue.is_busy
    found = [one for _ in range(9) for one, _ in queue.ended(wait=True)]
    assert set(found) - left == {0, *range(2, AT_ONCE), AT_ONCE + 1}
    assert [AT_ONCE] not in [launch.ones for launch in stream.launches], "it was not begun"
    left |= {*range(AT_ONCE + 2)}
    assert not queue.is_busy


def test_short_memory_lets_all_others_end_first() -> None:
    stream = Stream()
    queue = opened(stream)
    queue.add([1])
    queue.ended(wait=False)
    stream.refuses = 1
    queue.add([2, 3])
    assert queue.ended(wait=False) == [(1, 10), (2, 20)]
    assert stream.launches[0].is_taken
    assert stream.decoded == [[2]]
    assert queue.ended(wait=True) == [(3, 30)]


def test_an_error_of_a_whole_call_is_that_of_each_window() -> None:
    def cancelled(ones: Sequence[int]) -> list[int]:
        raise CancelledError("generation: cancelled")

    queue = WindowQueue[int, int](LateHost(), cancelled, launch=lambda ones: None)
    queue.add([1, 2])
    assert [type(error) for _, error in queue.ended(wait=False)] == [CancelledError, CancelledError]


def test_close_waits_for_what_has_begun(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "tts_core")
    stream = Stream()
    queue = opened(stream)
    queue.add([*range(AT_ONCE + 2)])
    queue.ended(wait=False)
    stream.launches[0].error = ResourceError("memory: not enough")
    queue.close()
    assert [launch.is_taken for launch in stream.launches] == [True] * AT_ONCE
    assert not queue.is_busy
    assert [record.getMessage() for record in caplog.records] == [
        "serving: a sound that nobody waits for failed: memory: not enough"
    ]
