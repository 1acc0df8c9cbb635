"""Compare the embedded voice's real-time factor on a Linux CPU: in two trees of this project, or by BLAS.

    python benchmarks/voice_rtf.py --old FOLDER [--side torch,mlx] [--cpus 0,1] [--rounds 15] [--text TEXT]
        [--library FILE] [--threads 1]
    python benchmarks/voice_rtf.py --blas pip,system,system-1,mlx [--rounds 15] [--library FILE] [--text TEXT]

FOLDER: another tree, such as one made by `git worktree add --detach FOLDER COMMIT`. Each side of each tree is
bound to the given cores, with the same OpenBLAS preloaded and the same number of its threads.
--blas: MLX with the OpenBLAS of the cpu extra (pip), the one of the system (FILE), preloaded, with its own
choice of threads (system) or with one (system-1), and the slow one that MLX includes (mlx).

Each is a process that loads once, speaks once before the timed turns, and then speaks in turn with the
others, so that all see the same load. CPU: seconds of processor time, all threads, a second of speech; other
programs change it less than the real-time factor. Ratios are medians over the turns.
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
from typing import Any

from random_networks import PACKAGES
from timing import arguments

TEXT = "[S1] Hello, this is a voice made by a small network."
LIBRARIES = (
    f"/usr/lib/{platform.machine()}-linux-gnu/openblas-pthread/libopenblas.so.0",
    "/usr/lib64/libopenblas.so.0",
)
HERE = Path(__file__).parents[1]
OUTSIDE = {"LD_PRELOAD", "MLX_PORT_BLAS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"}
CODE = """
import hashlib, json, os, sys, time
side, text = sys.argv[1:]
# another tree's packages without __init__.py would lose against those of an editable installation
sys.path[:] = [p for p in sys.path if not os.path.isdir(os.path.join(p, "tts_core")) or p == os.getcwd()]
import numpy as np
package = __import__(side)
def speak():
    wall, used = time.perf_counter(), time.process_time()
    result = package.generate(text, seed=1)
    seconds = result.audio.shape[0] / result.sample_rate
    wall, used = time.perf_counter() - wall, time.process_time() - used
    arrays = np.ascontiguousarray(result.codes), result.audio
    digests = [hashlib.sha256(array.tobytes()).hexdigest()[:8] for array in arrays]
    print(json.dumps([wall / seconds, used / seconds, seconds, *digests]), flush=True)
blas = ""
if side == "mlx_port" and os.path.exists("mlx_port/runtime/blas.py"):
    from mlx_port.runtime.blas import load_blas
    blas = getattr(load_blas(), "why", "")
print(json.dumps([package.__file__, blas]), flush=True)
for _ in sys.stdin:
    speak()
"""


class Speaker:
    """A process that speaks on request. blas: what MLX uses."""

    def __init__(self, tree: Path, package: str, text: str, environment: dict[str, str], cpus: str | None):
        kept = {name: value for name, value in os.environ.items() if name not in OUTSIDE}
        cores = set(map(int, cpus.split(","))) if cpus else os.sched_getaffinity(0)
        self.turns: list[list[Any]] = []
        self.process = subprocess.Popen(
            [sys.executable, "-c", CODE, package, text],
            env={**kept, "PYTHONPATH": str(tree), "HF_HUB_OFFLINE": "1", **environment},
            cwd=tree,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: os.sched_setaffinity(0, cores),
        )
        found, self.blas = self._read() or ["nothing", ""]
        if not Path(found).is_relative_to(tree):
            raise SystemExit(f"{package} of {tree}: Python imported {found}")
        self()
        self.turns.clear()

    def __call__(self) -> None:
        """Speak once and note real-time factor, CPU, seconds of speech, hashes of codes and samples."""
        assert self.process.stdin is not None
        print("speak", file=self.process.stdin, flush=True)
        self.turns.append(self._read())

    def _read(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        return json.loads(line) if line else None

    def line(self) -> str:
        rtf, cpu, seconds, codes, samples = zip(*self.turns, strict=True)
        return (
            f"RTF {statistics.median(rtf):.3f} ({min(rtf):.3f} to {max(rtf):.3f}), "
            f"CPU {statistics.median(cpu):.3f} ({min(cpu):.3f}); {seconds[0]:.2f} s, "
            f"codes {','.join(sorted(set(codes)))}, samples {','.join(sorted(set(samples)))}"
        )

    def ratios(self, other: Speaker) -> str:
        """This one's times by another's: medians over the turns."""
        rtf, cpu = (
            statistics.median(b[place] / a[place] for a, b in zip(other.turns, self.turns, strict=True))
            for place in (0, 1)
        )
        best = min(turn[0] for turn in self.turns) / min(turn[0] for turn in other.turns)
        return f"medians by turn: RTF {rtf:.3f}, CPU {cpu:.3f}; the fastest turns: RTF {best:.3f}"


def speakers(args: argparse.Namespace) -> dict[str, Speaker]:
    if args.blas:
        preloaded = {"LD_PRELOAD": args.library}
        environments = {
            "pip": {},
            "system": preloaded,
            "system-1": {**preloaded, "OPENBLAS_NUM_THREADS": "1"},
            "mlx": {"MLX_PORT_BLAS": "off"},
        }
        names = args.blas.split(",")
        return {name: Speaker(HERE, "mlx_port", args.text, environments[name], args.cpus) for name in names}
    environment = {"LD_PRELOAD": args.library, "OPENBLAS_NUM_THREADS": str(args.threads)}
    trees = {"old": args.old.resolve(), "new": HERE}
    return {
        f"{side} {age}": Speaker(tree, PACKAGES[side], args.text, environment, args.cpus or "0,1")
        for side in args.side.split(",")
        for age, tree in trees.items()
    }


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--old", type=Path)
    parser.add_argument("--blas")
    parser.add_argument("--side", default="torch,mlx")
    parser.add_argument("--cpus", help="cores of each process; with --old 0,1")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--text", default=TEXT)
    parser.add_argument("--library", default=next(filter(os.path.exists, LIBRARIES), ""))
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    if sys.platform != "linux" or not (args.old or args.blas):
        print("give --old, a tree to compare with, or --blas, on Linux")
        return
    if "system" in (args.blas or "") and not args.library:
        print(f"none of {', '.join(LIBRARIES)} is there: give --library")
        return
    each = speakers(args)
    for number in range(args.rounds):
        keys = list(each)
        for key in keys[number % len(keys) :] + keys[: number % len(keys)]:
            each[key]()
    load = ", ".join(f"{number:.1f}" for number in os.getloadavg())
    where = f"cores {args.cpus or ('0,1' if args.old else 'all')}"
    print(f"{platform.platform()}, {where}, Python {platform.python_version()}, load {load}")
    for name, one in each.items():
        print(f"{name}: {one.line()}{f'; {one.blas}' if args.blas else ''}")
    first = next(iter(each))
    pairs = [(f"{side} old", f"{side} new") for side in args.side.split(",")]
    for other, name in [(first, name) for name in each if name != first] if args.blas else pairs:
        print(f"{name} / {other}, {each[name].ratios(each[other])}")


if __name__ == "__main__":
    main()
