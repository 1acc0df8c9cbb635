"""Bytes on their way to a client that may read more slowly than they come."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from tempfile import SpooledTemporaryFile
from types import TracebackType
from typing import TypeVar

from anyio import to_thread

MEMORY = 1 << 20  # bytes of one response; what is beyond them waits in a temporary file
Made = TypeVar("Made")


class Backlog:
    """A queue of bytes for one event loop: `fill` at one end, `frames` at the other.

    Whoever makes the bytes never waits for whoever reads them. The file has no name and ends with the block.
    """

    def __init__(self, memory: int = MEMORY):
        self.memory = memory
        self._file = SpooledTemporaryFile(memory)  # noqa: SIM115 (closed by __exit__)
        self._start = self._end = 0  # of the bytes that wait
        self._lock = threading.Lock()  # of the three above
        self._is_on_disk = self._is_complete = False
        self._news = asyncio.Event()

    def __enter__(self) -> Backlog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    async def fill(self, pieces: AsyncIterator[bytes]) -> None:
        """Take all pieces. Raises their error, and OSError for a full disk; `frames` then ends early."""
        try:
            async for piece in pieces:
                self._is_on_disk |= self._end + len(piece) > self.memory
                await self._run(lambda piece=piece: self._put(piece))
                self._news.set()
        finally:
            self._is_complete = True
            self._news.set()

    async def frames(self, size: int) -> AsyncIterator[bytes]:
        """Yield the bytes in order, `size` at most at a time, as soon as there are any."""
        while True:
            self._news.clear()
            is_complete = self._is_complete
            frame = await self._run(lambda: self._take(size))
            if frame:
                yield frame
            elif is_complete:
                return
            else:
                await self._news.wait()

    async def _run(self, work: Callable[[], Made]) -> Made:
        return await to_thread.run_sync(work) if self._is_on_disk else work()

    def _put(self, piece: bytes) -> None:
        with self._lock:
            self._file.seek(self._end)
            self._file.write(piece)
            self._end += len(piece)

    def _take(self, size: int) -> bytes:
        with self._lock:
            self._file.seek(self._start)
            frame = self._file.read(size)
            self._start += len(frame)
            if self._start == self._end:
                self._start = self._end = 0
                self._file.seek(0)
                self._file.truncate()
        return frame
