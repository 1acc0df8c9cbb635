"""Tar shards that grow, named as WebDataset asks: all files of a sample share a name and differ in suffix."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Collection
from pathlib import Path

from tts_core.files.whole import append

BLOCK = 512  # bytes
END = bytes(2 * BLOCK)


class TarShard:
    """A shard to append to. What a killed run left after the last whole sample is cut off.

    whole: samples, by name without suffix, that are on record.
    """

    def __init__(self, path: Path, whole: Collection[str]):
        self.path = path
        self.end = _whole_end(path, whole)
        if path.exists():
            os.truncate(path, self.end)

    def add(self, name: str, content: bytes) -> None:
        """Append a file; the shard ends well after each. Raises OSError, and the shard is as before."""
        info = tarfile.TarInfo(name)
        info.size, info.mode = len(content), 0o644
        entry = info.tobuf() + content + bytes(-len(content) % BLOCK)
        # opened for each file: rows come in another order than shards, so that all may be in use at once
        append(self.path, entry + END, self.end)
        self.end += len(entry)

    def cut(self, end: int) -> None:
        """Remove what was added since the shard's `end` was this."""
        self.end = end
        if self.path.exists():
            os.truncate(self.path, end)


def _whole_end(path: Path, whole: Collection[str]) -> int:
    """Find the end of the leading entries whose samples are on record."""
    if not path.exists():
        return 0
    end, size = 0, path.stat().st_size
    with path.open("rb") as file:
        while end + BLOCK <= size:
            file.seek(end)
            try:
                info = tarfile.TarInfo.frombuf(file.read(BLOCK), "utf-8", "strict")
            except tarfile.HeaderError:
                break
            after = end + BLOCK + -(-info.size // BLOCK) * BLOCK
            if info.name.partition(".")[0] not in whole or after > size:
                break
            end = after
    return end
