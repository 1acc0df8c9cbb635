"""Trial reading of a pickle in a child process with limits of time and memory.

The parent reads the file only after the child succeeded: the same bytes then take the same time.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil

from tts_core.errors import CheckpointError, NotFoundError, ResourceError, SpeechError

SECONDS = 10.0  # of processor time for reading, beside PyTorch's start
MEMORY = 1 << 30  # bytes beside PyTorch's own and the file's size
_PYTORCH = 1 << 30  # bytes that PyTorch takes at most for itself
_STARTED = 60.0  # seconds until PyTorch must be there
_BYTES_A_SECOND = 50e6  # of a slow disk
_POLL = 0.02  # seconds
_LONGEST_ANSWER = 10_000  # bytes
_ERRORS = {kind.exit_code: kind for kind in (NotFoundError, CheckpointError, ResourceError)}
_CODE = """
import sys
sys.path.insert(0, sys.argv[1])
from converters.files.pickle_trial import main
main()
"""


def try_in_child(path: Path) -> None:
    """Read a pickle in a child process.

    Raises the child's error, or CheckpointError if it exceeded a limit.
    """
    size = path.stat().st_size
    root = Path(__file__).resolve().parents[2]
    arguments = [sys.executable, "-P", "-c", _CODE, str(root), os.fspath(path), str(SECONDS), str(MEMORY)]
    with subprocess.Popen(
        arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as child:
        try:
            over = _watch(child, _STARTED + 2 * SECONDS + size / _BYTES_A_SECOND, MEMORY + 2 * size)
        finally:
            child.kill()
        assert child.stdout is not None
        answer = child.stdout.read(_LONGEST_ANSWER)
    if over is None and child.returncode == 0:
        return
    fault = _fault(answer)
    if over is None and fault is not None:
        raise fault
    limit = over or f"{SECONDS:g} s of processor time, or {MEMORY >> 20} MB of memory beside PyTorch's own"
    raise CheckpointError(f"{path}: refused: reading it takes more than {limit}; nothing of it was kept")


def _watch(child: subprocess.Popen[bytes], seconds: float, memory: int) -> str | None:
    """Wait for the child's end. Return the limit that it exceeded, if any.

    memory: bytes beside PyTorch's own. Linux limits the child itself, macOS does not.
    """
    process, end = psutil.Process(child.pid), time.monotonic() + seconds
    while child.poll() is None:
        if time.monotonic() > end:
            return f"{seconds:.0f} s"
        with contextlib.suppress(psutil.Error):
            if process.memory_info().rss > _PYTORCH + memory:
                return f"{memory >> 20} MB of memory"
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(_POLL)
    return None


def _fault(answer: bytes) -> SpeechError | None:
    """Build the error that the child reported; None if it ended without a report."""
    try:
        code, message = json.loads(answer)
        return _ERRORS.get(code, CheckpointError)(message)
    except (ValueError, KeyError, TypeError):
        return None
