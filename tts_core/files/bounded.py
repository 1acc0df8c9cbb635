"""A file whose reads are bounded, for parsers that read as many bytes as the file says."""

from __future__ import annotations

import io

from tts_core.errors import CheckpointError

LARGEST_READ = 16 << 20  # bytes; of published files, descriptions take 1.2 million
_LONGEST_LINE = 4096  # bytes


class BoundedReader(io.BufferedReader):
    """A buffered file. Reading more than LARGEST_READ bytes at once raises CheckpointError; a line is cut.

    A number in a small or sparse file may ask for gigabytes, or for more than an index can be.
    """

    def read(self, size: int | None = -1, /) -> bytes:
        """Read `size` bytes, or fewer at the file's end; by default all that is left."""
        bounded = size is not None and 0 <= size <= LARGEST_READ
        content = super().read(size if bounded else LARGEST_READ + 1)
        if len(content) > LARGEST_READ:
            raise CheckpointError(f"refused: a part of more than {LARGEST_READ} bytes that is no tensor")
        return content

    def readline(self, size: int | None = -1, /) -> bytes:
        """Read a line, at most 4096 bytes of it."""
        return super().readline(_LONGEST_LINE)
