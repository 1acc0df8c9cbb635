"""Run `mlx-port batch` as a process and watch it; for benchmarks/bulk.py and benchmarks/bulk_gpu.py."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psutil

BATCH = [sys.executable, "-c", "from mlx_port.commands.main import main; main()", "batch"]


class Sample(NamedTuple):
    """A moment of a run. memory: bytes of all its processes."""

    seconds: float
    rows: int
    memory: int


class Run(NamedTuple):
    """A run of the command. lines: of its records.  processor: seconds of all processes together."""

    samples: list[Sample]
    lines: list[dict[str, Any]]
    seconds: float
    processor: float

    @property
    def speech(self) -> float:
        """Seconds of speech."""
        return sum(line["duration"] for line in self.lines)


def run(
    source: Path,
    out: Path,
    flags: Sequence[str],
    *,
    minutes: float = 60.0,
    environment: Mapping[str, str] | None = None,
) -> Run:
    """Run the command, and stop it after some minutes. Raises CalledProcessError if it fails.

    environment: changes of its variables.
    """
    started, used = time.perf_counter(), processor_seconds()
    command = [*BATCH, str(source), "--out", str(out), "--quiet", *flags]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, env={**os.environ, **(environment or {})})
    samples = []
    while running.poll() is None:
        time.sleep(1)
        seconds = time.perf_counter() - started
        if seconds > 60 * minutes:
            running.send_signal(signal.SIGINT)
            running.wait()
            break
        samples.append(Sample(seconds, sum(1 for _ in recorded(out)), memory(running.pid)))
    seconds = time.perf_counter() - started
    if running.returncode not in (0, 130):
        raise subprocess.CalledProcessError(running.returncode, command)
    lines = [json.loads(line) for line in recorded(out)]
    return Run(samples, lines, seconds, processor_seconds() - used)


def processor_seconds() -> float:
    """Processor time of all processes that this one started and that have ended, and theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def recorded(out: Path) -> Iterator[bytes]:
    """The complete lines of a run's records."""
    for path in (out / ".work").glob("manifest-*.jsonl"):
        yield from path.read_bytes().rpartition(b"\n")[0].splitlines()


def memory(pid: int) -> int:
    """Bytes of a process and its children, without pages that they share with files."""
    total = 0
    try:
        for child in [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]:
            total += child.memory_info().rss - getattr(child.memory_info(), "shared", 0)
    except psutil.Error:
        pass
    return total
