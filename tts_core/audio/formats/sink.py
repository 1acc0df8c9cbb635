"""Destinations of encoders: a file that can seek, or a stream whose sent bytes cannot change."""

from __future__ import annotations

from typing import Protocol


class BinaryOutput(Protocol):
    """A binary file; `seek` is called only if `seekable` says so."""

    def write(self, data: bytes, /) -> object:
        """Take bytes at the current position."""
        ...

    def seek(self, offset: int, /) -> object:
        """Move to an offset from the start."""
        ...


class Sink:
    """File interface of libsndfile and PyAV over an output.

    Encoders go back to complete their headers. In a stream these bytes are dropped: the header then says that
    the length is unknown. An error of the output is kept in `error`, because C code cannot pass it on.
    """

    def __init__(self, output: BinaryOutput, *, seekable: bool):
        self._seekable = seekable
        self.error: BaseException | None = None
        self._output = output
        self._offset = self._end = 0

    def write(self, data: bytes | memoryview) -> int:
        """Write at the current position; in a stream, only bytes beyond its end."""
        if self.error is None:
            try:
                self._write(bytes(data))
            except BaseException as error:  # Ctrl-C included: C code would swallow it
                self.error = error
        self._offset += len(data)
        self._end = max(self._end, self._offset)
        return len(data)

    def _write(self, data: bytes) -> None:
        if self._seekable:
            self._output.seek(self._offset)
            self._output.write(data)
        elif new := data[max(0, self._end - self._offset) :]:
            self._output.write(new)

    def stream(self, output: BinaryOutput) -> None:
        """Append bytes to a stream."""
        self._seekable, self._output = False, output

    def seek(self, offset: int, whence: int = 0) -> int:
        """Move to an offset from the start (whence 0), the current position (1) or the end (2)."""
        self._offset = offset + (0, self._offset, self._end)[whence]
        return self._offset

    def seekable(self) -> bool:
        """Return whether bytes that were written can be changed."""
        return self._seekable

    def tell(self) -> int:
        """Return the current position."""
        return self._offset

    def read(self, size: int = -1) -> bytes:
        """Read nothing: encoders never need to."""
        return b""
