"""Growth of work with its input, as ratios of processor times, and peak memory.

Eight times the input takes eight times the work if it is linear and 64 times if it is quadratic: the limit
between them is a factor of about three from both, which the load of a machine does not make up.
"""

from __future__ import annotations

import sys
import time
import tracemalloc
from collections.abc import Callable
from types import FrameType
from typing import Any

TIMES, MOST = 8, 24  # times the input, and at most how many times the work
_ATTEMPTS, _REPEATS = 4, 3


def growth(work: Callable[[int], object], size: int) -> float:
    """Divide the time of `work(TIMES * size)` by that of `work(size)`; the least of several attempts."""
    return min(_shortest(work, TIMES * size) / _shortest(work, size) for _ in range(_ATTEMPTS))


def peak_bytes(work: Callable[[], object]) -> int:
    """Measure the most memory that Python and NumPy hold for `work` at a time."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def lines_run(work: Callable[[], object], most: int = 10**7) -> int:
    """Count the lines of Python that `work` runs: the same number on every machine, under any load.

    Raises AssertionError inside `work` if there are more than `most`.
    """
    count, before = 0, sys.gettrace()

    def trace(_frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal count
        count += event == "line"
        assert count <= most, f"more than {most} lines"
        return trace

    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def _shortest(work: Callable[[int], object], size: int) -> float:
    times = []
    for _ in range(_REPEATS):
        start = time.process_time()
        work(size)
        times.append(time.process_time() - start)
    return min(times)
