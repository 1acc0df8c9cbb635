"""Read a safetensors file back while it is written: one pass for its tensors' checksums and its sha256."""

from __future__ import annotations

import hashlib
import threading
import zlib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from io import FileIO
from pathlib import Path
from typing import NamedTuple

from converters.files.writer import Entry, Written
from tts_core.errors import CheckpointError
from tts_core.files.header import read_header

_PIECE_BYTES = 2**20  # read at a time


class Found(NamedTuple):
    """The contents of a file on the disk."""

    tensors: list[Written]
    sha256: str  # of the whole file


class Follower:
    """A thread that reads a file in order, each tensor once it is written.

    The file must have its header and its full size. Leaving the block without `complete` ends the thread.
    """

    def __init__(self, path: Path):
        self._path, self._news = path, threading.Condition()
        self._written: set[str] = set()
        self._complete = self._stopped = False
        self._pool = ThreadPoolExecutor(1)
        self._found = self._pool.submit(self._read)

    def written(self, name: str) -> None:
        """Report a tensor that is in the file."""
        with self._news:
            self._written.add(name)
            self._news.notify()

    def complete(self) -> None:
        """Report that all tensors are."""
        with self._news:
            self._complete = True
            self._news.notify()

    def found(self) -> Found:
        """Wait for the end of the file. Raises what reading it raises."""
        return self._found.result()

    def __enter__(self) -> Follower:
        return self

    def __exit__(self, *_: object) -> None:
        with self._news:
            self._stopped = not self._complete
            self._news.notify()
        self._pool.shutdown()

    def _read(self) -> Found:
        digest, tensors = hashlib.sha256(), list[Written]()
        places = sorted(read_header(self._path)[0].items(), key=lambda each: each[1].begin)
        with open(self._path, "rb", buffering=0) as file:
            for name, stored in places:
                self._wait(name)
                self._take(file, stored.begin - file.tell(), digest)  # the header
                crc = self._take(file, stored.end - stored.begin, digest)
                tensors.append(Written(Entry(name, stored.dtype, stored.shape), crc))
            self._take(file, self._path.stat().st_size - file.tell(), digest)
        return Found(tensors, digest.hexdigest())

    def _wait(self, name: str) -> None:
        with self._news:
            self._news.wait_for(lambda: name in self._written or self._complete or self._stopped)

    def _take(self, file: FileIO, left: int, digest: hashlib._Hash) -> int:
        """Read the next bytes. Returns their CRC-32."""
        piece, crc = bytearray(_PIECE_BYTES), 0
        while left and not self._stopped and (count := file.readinto(memoryview(piece)[:left])):
            view = memoryview(piece)[:count]
            digest.update(view)
            crc = zlib.crc32(view, crc)
            left -= count
        return crc


def check_written(expected: Sequence[Written], found: Iterable[Found]) -> None:
    """Raise CheckpointError unless the files contain exactly these tensors."""
    wanted = {each.entry.name: each for each in expected}
    there = {each.entry.name: each for file in found for each in file.tensors}
    wrong = [name for name in wanted | there if wanted.get(name) != there.get(name)]
    if wrong:
        raise CheckpointError(
            f"--mlx-path: {', '.join(wrong[:3])}: not on the disk as written ({len(wrong)} tensors); "
            "check the disk, or give another place"
        )
