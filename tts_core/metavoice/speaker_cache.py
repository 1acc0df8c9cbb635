"""Cache of one encoder's speaker vectors, by the content of the audio.

A key is a SHA-256 of the samples, never a path: a file that changed is another voice. In memory only.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Sequence

import numpy as np

KEPT = 64  # vectors, the latest used ones


class SpeakerCache:
    """Vectors of one encoder, in memory."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, np.ndarray] = OrderedDict()

    def embedding(
        self, utterances: Sequence[np.ndarray], embed: Callable[[Sequence[np.ndarray]], np.ndarray]
    ) -> np.ndarray:
        """The (E,) vector of a voice: a known one, else that which `embed` computes. Read-only.

        utterances: (L,) float32 samples each.
        """
        voice = key(utterances)
        found = self._known.get(voice)
        if found is None:
            found = np.array(embed(utterances))
        found.flags.writeable = False
        self._known[voice] = found
        self._known.move_to_end(voice)
        if len(self._known) > KEPT:
            self._known.popitem(last=False)
        return found


def key(utterances: Sequence[np.ndarray]) -> str:
    """Digest of the samples' bits, lengths and order."""
    digest = hashlib.sha256()
    for samples in utterances:
        exact = np.ascontiguousarray(samples, "<f4")
        digest.update(f"\n{len(exact)}\n".encode())
        digest.update(exact.data)
    return digest.hexdigest()
