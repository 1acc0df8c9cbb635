"""Measure the real-time factor of the embedded voice in MLX on a Linux CPU, by the BLAS that MLX uses.

    python benchmarks/blas.py [--rounds 5] [--side pip,system,system-1,mlx] [--library FILE] [--text TEXT]

pip: the OpenBLAS of the cpu extra. system: the one of the system (FILE), preloaded, with its own choice of
threads. system-1: the same with one thread. mlx: the slow one that MLX includes. Each run is a process of its
own, the sides take turns, and each process speaks once before the timed run. CPU: seconds of processor time,
all threads, a second of audio; other programs change it less than RTF.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from pathlib import Path

TEXT = "[S1] Hello, this is a voice made by a small network."
LIBRARIES = (
    f"/usr/lib/{platform.machine()}-linux-gnu/openblas-pthread/libopenblas.so.0",
    "/usr/lib64/libopenblas.so.0",
)
ENVIRONMENT = {
    "pip": {},
    "system": {"LD_PRELOAD": ""},
    "system-1": {"LD_PRELOAD": "", "OPENBLAS_NUM_THREADS": "1"},
    "mlx": {"MLX_PORT_BLAS": "off"},
}
CODE = """
import hashlib, json, sys, time
import mlx_port
from mlx_port.runtime.blas import load_blas
mlx_port.generate("[S1] Hello.", seed=1)
started = time.process_time()
result = mlx_port.generate(sys.argv[1], seed=1)
used = (time.process_time() - started) / result.audio_seconds
digest = hashlib.sha256(result.audio.tobytes()).hexdigest()[:8]
print(json.dumps([result.real_time_factor, used, result.audio_seconds, digest, load_blas().why]))
"""


def measure(side: str, library: str, text: str) -> tuple[float, float, float, str, str]:
    """Speak in a process: real-time factor, CPU, seconds of audio, hash of its samples, BLAS in use."""
    outside = {"LD_PRELOAD", "MLX_PORT_BLAS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"}
    env = {name: value for name, value in os.environ.items() if name not in outside}
    env |= {name: value or library for name, value in ENVIRONMENT[side].items()}
    done = subprocess.run([sys.executable, "-c", CODE, text], env=env, stdout=subprocess.PIPE, check=True)
    return tuple(json.loads(done.stdout))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--side", default="pip,system,system-1,mlx")
    parser.add_argument("--library", default=next(filter(os.path.exists, LIBRARIES), LIBRARIES[0]))
    parser.add_argument("--text", default=TEXT)
    args = parser.parse_args()
    if sys.platform != "linux" or not Path(args.library).is_file():
        print(f"{args.library} not found: nothing to compare with")
        return
    sides = args.side.split(",")
    runs = {side: [] for side in sides}
    for number in range(args.rounds):
        for side in sides[number % len(sides) :] + sides[: number % len(sides)]:
            runs[side].append(measure(side, args.library, args.text))
    print(f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    print(f"embedded voice, {runs[sides[0]][0][2]:.2f} s of audio, median (range) of {args.rounds}")
    for side in sides:
        factors, used, _, digests, why = zip(*runs[side], strict=True)
        print(f"{side}: {why[0]}; samples {', '.join(sorted(set(digests)))}")
        for name, values, place in (("RTF", factors, 0), ("CPU", used, 1)):
            ratios = [run[place] / value for run, value in zip(runs[sides[0]], values, strict=True)]
            print(
                f"  {name} {statistics.median(values):.3f} ({min(values):.3f} to {max(values):.3f});"
                f" {sides[0]} takes {statistics.median(ratios):.2f} of it, median by round"
            )


if __name__ == "__main__":
    main()
