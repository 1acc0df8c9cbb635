"""Growth of work with its input, as ratios of times that do not depend on the machine, and peak memory."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable

MOST = 2.5  # times the work for twice the input
_ATTEMPTS, _REPEATS = 4, 3


def growth(work: Callable[[int], object], size: int) -> float:
    """Divide the time of `work(2 * size)` by that of `work(size)`; the least of several attempts."""
    return min(_shortest(work, 2 * size) / _shortest(work, size) for _ in range(_ATTEMPTS))


def peak_bytes(work: Callable[[], object]) -> int:
    """Measure the most memory that Python and NumPy hold for `work` at a time."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def _shortest(work: Callable[[int], object], size: int) -> float:
    times = []
    for _ in range(_REPEATS):
        start = time.process_time()
        work(size)
        times.append(time.process_time() - start)
    return min(times)
