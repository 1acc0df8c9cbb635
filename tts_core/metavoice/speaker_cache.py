"""Speaker vectors that were computed before, found again by what the audio holds and which weights read it.

A key is a SHA-256 of the samples, never a path: a file that changed is another voice. In memory, and where a
folder is given also on disk.
"""

from __future__ import annotations

import hashlib
import os
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

KEPT = 64  # vectors in memory, the latest used ones


def fingerprint(tensors: Iterable[tuple[str, np.ndarray]], backend: str) -> str:
    """Of an encoder: its weights by name, in any order, and what computes with them, which decides the last
    digits.
    """
    digest = hashlib.sha256(backend.encode())
    for name, tensor in sorted(tensors, key=lambda item: item[0]):
        digest.update(f"\n{name} {tensor.dtype} {tensor.shape}\n".encode())
        digest.update(np.ascontiguousarray(tensor).data)
    return digest.hexdigest()


def cache_folder() -> Path:
    """Where vectors may be kept between runs: $XDG_CACHE_HOME/mlx-port/speakers, or below ~/.cache."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "mlx-port" / "speakers"


class SpeakerCache:
    """Vectors of one encoder. folder: None keeps them in memory alone."""

    def __init__(self, encoder: str, folder: Path | None = None):
        """encoder: its `fingerprint`."""
        self.encoder, self.folder = encoder, folder
        self._known: OrderedDict[str, np.ndarray] = OrderedDict()

    def key(self, utterances: Sequence[np.ndarray]) -> str:
        """Of (L,) float32 samples each: their bits, lengths and order, and the encoder."""
        digest = hashlib.sha256(self.encoder.encode())
        for samples in utterances:
            exact = np.ascontiguousarray(samples, "<f4")
            digest.update(f"\n{len(exact)}\n".encode())
            digest.update(exact.data)
        return digest.hexdigest()

    def embedding(
        self, utterances: Sequence[np.ndarray], embed: Callable[[Sequence[np.ndarray]], np.ndarray]
    ) -> np.ndarray:
        """The (E,) vector of a voice: a known one, else what `embed` makes of the recordings. Read-only."""
        key = self.key(utterances)
        found = self._known.get(key)
        if found is None:
            found = self._read(key)
        if found is None:
            found = np.array(embed(utterances))
            self._write(key, found)
        found.flags.writeable = False
        self._known[key] = found
        self._known.move_to_end(key)
        if len(self._known) > KEPT:
            self._known.popitem(last=False)
        return found

    def _read(self, key: str) -> np.ndarray | None:
        """A vector from disk; None where there is none, or what is there is not a vector of unit length."""
        if self.folder is None:
            return None
        try:
            found = np.load(self.folder / f"{key}.npy", allow_pickle=False)
        except (OSError, ValueError, EOFError):
            return None
        sound = isinstance(found, np.ndarray) and found.ndim == 1 and found.dtype == np.float32
        return found if sound and abs(float(np.linalg.norm(found)) - 1) < 1e-3 else None

    def _write(self, key: str, vector: np.ndarray) -> None:
        """Whole or not at all; a folder that cannot be written to only means computing again."""
        if self.folder is None:
            return
        partial = self.folder / f"{key}.{os.getpid()}.part"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with open(partial, "wb") as file:
                np.save(file, vector)
            os.replace(partial, self.folder / f"{key}.npy")
        except OSError:
            with suppress(OSError):
                partial.unlink(missing_ok=True)
