"""Read a safetensors file back while it is written: compare tensors, and compute the sha256 in a thread."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from io import FileIO
from pathlib import Path

import numpy as np

from converters.files.pieces import pieces
from converters.files.writer import TensorEntry, octets
from tts_core.errors import CheckpointError
from tts_core.files.header import TensorRange, read_header

_PIECE_BYTES = 2**20  # read at a time


class ReadBack:
    """A file that is being written. Its thread hashes the file in order, each tensor once it was compared.

    The file must have its header and its full size. Leaving the block before all tensors are written ends
    the thread.
    """

    def __init__(self, path: Path):
        self._path, self._news = path, threading.Condition()
        self._places = read_header(path)[0]
        self._compared: set[str] = set()
        self._stopped = False
        self._file = open(path, "rb", buffering=0)  # noqa: SIM115  closed on exit
        self._piece = np.empty(_PIECE_BYTES, np.uint8)
        self._pool = ThreadPoolExecutor(1)
        self._digest = self._pool.submit(self._hash)

    def compare(self, entry: TensorEntry, parts: Iterable[np.ndarray]) -> None:
        """Compare a tensor that was written, parts of its numbers in order.

        Raises CheckpointError if the file does not contain it.
        """
        stored = self._places.get(entry.name)
        if (
            stored is None
            or (stored.dtype, stored.shape) != (entry.dtype, entry.shape)
            or not self._equal(stored, parts)
        ):
            raise CheckpointError(
                f"DST: {entry.name}: not on the disk as written; check the disk, or give another place"
            )
        with self._news:
            self._compared.add(entry.name)
            self._news.notify()

    def sha256(self) -> str:
        """Wait for the file's hash; all its tensors were compared."""
        assert self._compared == self._places.keys(), (
            f"never compared: {self._places.keys() - self._compared}"
        )
        return self._digest.result()

    def __enter__(self) -> ReadBack:
        return self

    def __exit__(self, *_: object) -> None:
        with self._news:
            self._stopped = self._compared != self._places.keys()
            self._news.notify()
        self._pool.shutdown()
        self._file.close()

    def _equal(self, stored: TensorRange, parts: Iterable[np.ndarray]) -> bool:
        self._file.seek(stored.begin)
        for tensor in parts:
            for part in pieces(np.frombuffer(octets(tensor), np.uint8), _PIECE_BYTES):
                found = self._piece[: len(part)]
                if not _filled(self._file, found.data) or not np.array_equal(found, part):
                    return False
        return self._file.tell() == stored.end

    def _hash(self) -> str:
        digest = hashlib.sha256()
        with open(self._path, "rb", buffering=0) as file:
            for name, stored in sorted(self._places.items(), key=lambda each: each[1].begin):
                with self._news:
                    self._news.wait_for(lambda name=name: name in self._compared or self._stopped)
                self._take(file, stored.end - file.tell(), digest)  # with the header, before the first
            self._take(file, self._path.stat().st_size - file.tell(), digest)
        return digest.hexdigest()

    def _take(self, file: FileIO, left: int, digest: hashlib._Hash) -> None:
        piece = memoryview(bytearray(_PIECE_BYTES))
        while left and not self._stopped and (count := file.readinto(piece[:left])):
            digest.update(piece[:count])
            left -= count


def _filled(file: FileIO, target: memoryview) -> bool:
    """Read until `target` is full; False at the file's end."""
    while target and (count := file.readinto(target)):
        target = target[count:]
    return not target
