"""Compare the real-time factor of the embedded voice on a CPU in two trees of this project, by turns.

    python benchmarks/voice_rtf.py --old FOLDER [--side torch,mlx] [--cpus 0,1] [--rounds 15] [--text TEXT]
    [--library FILE] [--threads 1]

FOLDER: another tree, such as one made by `git worktree add --detach FOLDER COMMIT`. Each side of each tree is
a process that loads once, speaks once before the timed turns, and then speaks in turn with the others, so
that all see the same load; it is bound to the given cores, with the same OpenBLAS preloaded and the same
number of its threads. CPU: seconds of processor time, all threads, a second of speech; other programs change
it less than the real-time factor. Ratios are medians over the turns.
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

from blas import LIBRARIES, TEXT

HERE = Path(__file__).parents[1]
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
print(package.__file__, flush=True)
for _ in sys.stdin:
    speak()
"""


class Speaker:
    """A process that speaks on request."""

    def __init__(self, tree: Path, side: str, text: str, args: argparse.Namespace):
        environment = {
            **os.environ,
            "PYTHONPATH": str(tree),
            "LD_PRELOAD": args.library,
            "OPENBLAS_NUM_THREADS": str(args.threads),
            "HF_HUB_OFFLINE": "1",
        }
        for name in ("OMP_NUM_THREADS", "MLX_PORT_BLAS"):
            environment.pop(name, None)
        cores = set(map(int, args.cpus.split(",")))
        self.process = subprocess.Popen(
            [sys.executable, "-c", CODE, side, text],
            env=environment,
            cwd=tree,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: os.sched_setaffinity(0, cores),
        )
        assert self.process.stdout is not None
        found = self.process.stdout.readline().strip()
        if not Path(found).is_relative_to(tree):
            raise SystemExit(f"{side} of {tree}: Python imported {found or 'nothing'}")

    def __call__(self) -> list[float]:
        """Speak once: real-time factor, CPU, seconds of speech, hashes of codes and samples."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print("speak", file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--old", type=Path)
    parser.add_argument("--side", default="torch,mlx")
    parser.add_argument("--cpus", default="0,1")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--text", default=TEXT)
    parser.add_argument("--library", default=next(filter(os.path.exists, LIBRARIES), ""))
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    if args.old is None or sys.platform != "linux":
        print("give --old, a tree to compare with, on Linux")
        return
    packages = {"torch": "torch_ref", "mlx": "mlx_port"}
    trees = {"old": args.old.resolve(), "new": HERE}
    speakers = {
        (side, age): Speaker(tree, packages[side], args.text, args)
        for side in args.side.split(",")
        for age, tree in trees.items()
    }
    for speak in speakers.values():
        speak()
    turns: dict[tuple[str, str], list[list[float]]] = {key: [] for key in speakers}
    for number in range(args.rounds):
        keys = list(speakers)
        for key in keys[number % len(keys) :] + keys[: number % len(keys)]:
            turns[key].append(speakers[key]())
    load = ", ".join(f"{number:.1f}" for number in os.getloadavg())
    print(f"{platform.platform()}, cores {args.cpus}, Python {platform.python_version()}, load {load}")
    for (side, age), runs in turns.items():
        rtf, cpu, seconds, codes, samples = zip(*runs, strict=True)
        print(
            f"{side:<6}{age}: RTF {statistics.median(rtf):.3f} ({min(rtf):.3f} to {max(rtf):.3f}), "
            f"CPU {statistics.median(cpu):.3f} ({min(cpu):.3f}); {seconds[0]:.2f} s, "
            f"codes {','.join(sorted(set(codes)))}, samples {','.join(sorted(set(samples)))}"
        )
    for side in args.side.split(","):
        old, new = turns[side, "old"], turns[side, "new"]
        ratios = [
            statistics.median(b[place] / a[place] for a, b in zip(old, new, strict=True)) for place in (0, 1)
        ]
        best = min(run[0] for run in new) / min(run[0] for run in old)
        print(f"{side}: new / old, medians by turn: RTF {ratios[0]:.3f}, CPU {ratios[1]:.3f}")
        print(f"{side}: new / old, the fastest turns: RTF {best:.3f}")


if __name__ == "__main__":
    main()
