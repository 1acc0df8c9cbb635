"""The child's side of a trial reading (pickle_child)."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path

import psutil

from converters.files.pickles import read_here
from tts_core.errors import explain


def main() -> None:
    """Read the pickle that the command line names, within limits; print an error as JSON and exit with 1."""
    import resource

    import torch  # noqa: F401  its start is not counted

    path, seconds, memory = Path(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu = int(used.ru_utime + used.ru_stime + seconds) + 1
    space = psutil.Process().memory_info().vms + 2 * path.stat().st_size + memory
    for limit, value in ((resource.RLIMIT_CPU, cpu), (resource.RLIMIT_AS, space), (resource.RLIMIT_CORE, 0)):
        with contextlib.suppress(
            ValueError, OSError
        ):  # macOS has no such limit of memory; the parent watches
            resource.setrlimit(limit, (value, value))
    try:
        read_here(path)
    except MemoryError:
        sys.exit(1)
    except Exception as fault:
        code, message = explain(fault)
        print(json.dumps([code, message[:2000]]))
        sys.exit(1)
