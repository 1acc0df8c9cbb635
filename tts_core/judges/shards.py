"""Recordings inside tar shards, as `mlx-port batch --tar` writes them: shard.tar/NAME."""

from __future__ import annotations

import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tts_core.errors import UsageError, not_there


@contextmanager
def on_disk(recording: Path) -> Iterator[Path]:
    """Yield a path of the recording: its own, or that of a temporary copy of the shard's entry.

    Raises NotFoundError for a missing shard, UsageError for a damaged one or a missing entry.
    """
    shard = recording.parent
    if shard.suffix != ".tar" or shard.is_dir():
        yield recording
        return
    if not shard.exists():
        raise not_there("audio", shard)
    with tempfile.NamedTemporaryFile(suffix=recording.suffix) as copy:
        copy.write(_entry(shard, recording.name))
        copy.flush()
        yield Path(copy.name)


def _entry(shard: Path, name: str) -> bytes:
    try:
        with tarfile.open(shard) as archive:
            file = archive.extractfile(name)
            if file is not None:
                return file.read()
    except (tarfile.TarError, OSError) as error:
        raise UsageError(f"audio: {shard} cannot be read ({error}); make it again") from error
    except KeyError:
        pass
    raise UsageError(f"audio: {shard} has no entry {name}")
