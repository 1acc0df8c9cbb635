"""Large arrays: in pieces that fit in a cache, and in memory that is used again."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator

import numpy as np

PIECE = 2**18  # numbers; of float32 a megabyte, which a core's cache holds


def blocks(array: np.ndarray, size: int = PIECE) -> Iterator[np.ndarray]:
    """Yield the numbers of an array in C order, `size` at a time, the last ones fewer."""
    flat = array.reshape(-1)
    for first in range(0, len(flat), size):
        yield flat[first : first + size]


def all_finite(array: np.ndarray) -> bool:
    """Return True unless a number is NaN or infinite."""
    return all(bool(np.isfinite(piece).all()) for piece in blocks(array))


class ScratchMemory(threading.local):
    """Memory for float32 arrays, of which each thread uses one at a time.

    A system clears new memory before a program may use it, which takes as long as writing a tensor to a file.
    """

    def __init__(self) -> None:
        self._buffer = np.empty(0, np.float32)

    def array(self, shape: tuple[int, ...]) -> np.ndarray:
        """Return an array with any numbers in it, in place of this thread's last one."""
        size = math.prod(shape)
        if size > len(self._buffer):
            del self._buffer  # not beside the new one
            self._buffer = np.empty(size, np.float32)
        return self._buffer[:size].reshape(shape)
