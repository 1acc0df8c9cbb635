"""Threads that have ended for Python, but not yet for the system."""

from __future__ import annotations

import os
import threading
import time

_TASKS = "/proc/self/task"
_LONGEST = 5.0  # seconds
_GUESS = 0.2  # seconds, where the system does not list its threads by number


def wait_for_system(thread: threading.Thread) -> None:
    """Wait until a joined thread has left the process.

    Before Python 3.13 `join` returns earlier. At the very end of a thread MLX frees what it compiled there,
    with Python's lock, and a program that exits meanwhile is aborted.
    """
    if not os.path.isdir(_TASKS):
        time.sleep(_GUESS)
        return
    end = time.perf_counter() + _LONGEST
    while os.path.exists(f"{_TASKS}/{thread.native_id}") and time.perf_counter() < end:
        time.sleep(0.001)
