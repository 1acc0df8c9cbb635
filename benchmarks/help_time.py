"""Measure milliseconds of --help for every command, and of Python's own start.

time: wall clock. CPU: processor time, which other work of the machine changes less.
"""

import platform
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

from mlx_port.commands.main import COMMANDS

RUNS = 7


def median_ms(command: list[str]) -> str:
    """Median wall and processor times of a process, as two columns."""
    times = []
    for _ in range(RUNS + 1):
        started, before = time.perf_counter(), processor_seconds()
        subprocess.run(command, capture_output=True, check=True)
        times.append((time.perf_counter() - started, processor_seconds() - before))
    wall, processor = zip(*times[1:], strict=True)  # the first one warms the disk cache
    return f"{1000 * statistics.median(wall):6.0f} {1000 * statistics.median(processor):6.0f}"


def processor_seconds() -> float:
    """Processor time of the processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Print one line per command."""
    scripts = Path(sys.executable).parent
    print(f"{platform.machine()}, {platform.system()}, Python {platform.python_version()}")
    print(f"ms, median of {RUNS} runs\n  time    CPU")
    print(f"{median_ms([sys.executable, '-c', 'pass'])}  python -c pass")
    for command in ("mlx-port", *(f"mlx-port {name}" for name in COMMANDS), "convert-weights"):
        name, *rest = command.split()
        print(f"{median_ms([str(scripts / name), *rest, '--help'])}  {command} --help")


if __name__ == "__main__":
    main()
