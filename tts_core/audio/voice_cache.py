"""Cache of one encoder's results by the content of the recordings: a speaker vector, or codes.

A key is a SHA-256 of the samples, never a path, so a changed file is another voice. In memory only.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Sequence

import numpy as np

MOST = 64  # most recently used voices


class VoiceCache:
    """Cache of one encoder's voices, in memory."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, np.ndarray] = OrderedDict()

    def encoded(
        self, recordings: Sequence[np.ndarray], encode: Callable[[Sequence[np.ndarray]], np.ndarray]
    ) -> np.ndarray:
        """Return a voice from the cache, else from `encode`. Read-only.

        recordings: (L,) float32 samples each.
        """
        voice = key(recordings)
        found = self._known.get(voice)
        if found is None:
            found = np.array(encode(recordings))
        found.flags.writeable = False
        self._known[voice] = found
        self._known.move_to_end(voice)
        if len(self._known) > MOST:
            self._known.popitem(last=False)
        return found


def key(recordings: Sequence[np.ndarray]) -> str:
    """Hash the samples' bits, lengths and order."""
    digest = hashlib.sha256()
    for samples in recordings:
        exact = np.ascontiguousarray(samples, "<f4")
        digest.update(f"\n{len(exact)}\n".encode())
        digest.update(exact.data)
    return digest.hexdigest()
