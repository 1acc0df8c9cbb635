"""Growth of work with its input, counted in lines of Python, and peak memory.

Eight times the input takes eight times the work if it is linear and 64 times if it is quadratic: the limit
between them is a factor of about three from both. Lines are the same on every machine; what C does within one
is in docs/measured/speed.md.
"""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from types import FrameType
from typing import Any

TIMES, MOST = 8, 24  # times the input, and at most how many times the work


def growth(work: Callable[[int], object], size: int) -> float:
    """Divide the lines that `work(TIMES * size)` runs by those of `work(size)`.

    Both run once before, so that caches are filled, and files there.
    """
    short, long = (_counted(work, each) for each in (size, TIMES * size))
    return long / short


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


def _counted(work: Callable[[int], object], size: int) -> int:
    work(size)
    return lines_run(lambda: work(size))
