"""Measure milliseconds of --help for every command, and of Python's own start."""

import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

RUNS = 7


def median_ms(command: list[str]) -> float:
    """Median wall time of a process."""
    times = []
    for _ in range(RUNS + 1):
        started = time.perf_counter()
        subprocess.run(command, capture_output=True, check=True)
        times.append(1000 * (time.perf_counter() - started))
    return statistics.median(times[1:])  # the first one warms the disk cache


def main() -> None:
    """Print one line per command."""
    scripts = Path(sys.executable).parent
    print(f"{platform.machine()}, {platform.system()}, Python {platform.python_version()}")
    print(f"ms, median of {RUNS} runs")
    print(f"{median_ms([sys.executable, '-c', 'pass']):6.0f}  python -c pass")
    for command in (
        "mlx-port",
        "mlx-port generate",
        "mlx-port convert",
        "mlx-port verify",
        "mlx-port estimate",
        "mlx-port doctor",
        "convert-weights",
    ):
        name, *rest = command.split()
        print(f"{median_ms([str(scripts / name), *rest, '--help']):6.0f}  {command} --help")


if __name__ == "__main__":
    main()
