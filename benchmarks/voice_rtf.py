"""Compare the embedded voice's real-time factor on a Linux CPU: in two trees of this project, or by BLAS.

    python benchmarks/voice_rtf.py --old FOLDER [--side torch,mlx] [--cpus 0,1] [--rounds 15] [--text TEXT]
        [--library FILE] [--threads 1] [--yardstick] [--job JOB] [--model FOLDER] [--voice FILE]
        [--options JSON]
    python benchmarks/voice_rtf.py --blas pip,system,system-1,mlx [--rounds 15] [--library FILE] [--text TEXT]

FOLDER: another tree, such as one made by `git worktree add --detach FOLDER COMMIT`. Each side of each tree is
bound to the given cores, with the same OpenBLAS preloaded and the same number of its threads.
--yardstick: the old tree twice, so that the ratio of the two is the measurement's own noise.
JOB: generate (a speech; its steps, where it is long), first (to the first part of a stream), batch:64 (that
many texts by generate_batch), streams:32 (requests in one session, as a server runs them), of the embedded
voice or of a converted FOLDER, in the voice of a recording FILE. JSON: options, as {"max_frames": 200}.
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

from benchmarks.lib.random_networks import PACKAGES
from benchmarks.lib.timing import arguments

TEXT = "[S1] Hello, this is a voice made by a small network."
LIBRARIES = (
    f"/usr/lib/{platform.machine()}-linux-gnu/openblas-pthread/libopenblas.so.0",
    "/usr/lib64/libopenblas.so.0",
)
HERE = Path(__file__).parents[1]
OUTSIDE = {"LD_PRELOAD", "MLX_PORT_BLAS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"}
CODE = """
import hashlib, importlib, json, os, resource, sys, time
side, text, job, model, voice, options = sys.argv[1:]
job, count = job.partition(":")[0], int(job.partition(":")[2] or 1)
# another tree's packages without __init__.py would lose against those of an editable installation
sys.path[:] = [p for p in sys.path if not os.path.isdir(os.path.join(p, "tts_core")) or p == os.getcwd()]
import numpy as np
package, options = __import__(side), {"seed": 1, **json.loads(options)}
from tts_core.prompt import Prompt
from tts_core.audio.files import read_audio
prompt = Prompt.of(read_audio(voice, 24_000), sample_rate=24_000) if voice else None
how = {} if side == "mlx_port" else {"device": "cpu"}
model = package.load(model, **how) if model else importlib.import_module(side + ".api").embedded_voice()
def streams():
    from tts_core.options import options_class
    name = type(model).__module__.split(".")[1]
    session, parts = model.session(count), []
    for seed in range(count):
        session.join(model.request(text, options_class(name)(**{**options, "seed": seed}), prompt))
    while session.running:
        parts += [event.result for event in session.step()]
    session.close()
    return sorted(parts, key=lambda part: (part.seed, part.segment_idx))
jobs = {"generate": lambda: [model.generate(text, prompt=prompt, **options)], "streams": streams}
jobs["first"] = lambda: [next(iter(model.stream(text, prompt=prompt, **options)))]
jobs["batch"] = lambda: model.generate_batch([text] * count, prompts=[prompt] * count, **options)
def speak():
    wall, used = time.perf_counter(), time.process_time()
    results = jobs[job]()
    seconds = sum(one.audio.shape[0] / one.sample_rate for one in results)
    wall, used = time.perf_counter() - wall, time.process_time() - used
    arrays = np.concatenate([one.codes for one in results], 1), np.concatenate([one.audio for one in results])
    digests = [hashlib.sha256(array.tobytes()).hexdigest()[:8] for array in arrays]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps([wall / seconds, used / seconds, peak, seconds, *digests]), flush=True)
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

    def __init__(
        self, tree: Path, package: str, what: list[str], environment: dict[str, str], cpus: str | None
    ):
        outside = {name: value for name, value in os.environ.items() if name not in OUTSIDE}
        cores = set(map(int, cpus.split(","))) if cpus else os.sched_getaffinity(0)
        self.rounds: list[list[Any]] = []
        self.process = subprocess.Popen(
            [sys.executable, "-c", CODE, package, *what],
            env={**outside, "PYTHONPATH": str(tree), "HF_HUB_OFFLINE": "1", **environment},
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
        self.rounds.clear()

    def __call__(self) -> None:
        """Speak once: note real-time factor, CPU, peak MB, seconds of speech, hashes of codes and samples."""
        assert self.process.stdin is not None
        print("speak", file=self.process.stdin, flush=True)
        self.rounds.append(self._read())

    def _read(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        return json.loads(line) if line else None

    def line(self) -> str:
        rtf, cpu, peak, seconds, codes, samples = zip(*self.rounds, strict=True)
        return (
            f"RTF {statistics.median(rtf):.3f} ({min(rtf):.3f} to {max(rtf):.3f}), "
            f"CPU {statistics.median(cpu):.3f} ({min(cpu):.3f}), peak {max(peak):.0f} MB; "
            f"{seconds[0]:.2f} s, codes {','.join(sorted(set(codes)))}, "
            f"samples {','.join(sorted(set(samples)))}"
        )

    def ratios(self, other: Speaker) -> str:
        """This one's times by another's: medians over the turns."""
        rtf, cpu, peak = (
            statistics.median(b[index] / a[index] for a, b in zip(other.rounds, self.rounds, strict=True))
            for index in (0, 1, 2)
        )
        best = min(best_of[0] for best_of in self.rounds) / min(best_of[0] for best_of in other.rounds)
        medians = f"RTF {rtf:.3f}, CPU {cpu:.3f}, peak {peak:.3f}"
        return f"medians by turn: {medians}; the fastest turns: RTF {best:.3f}"


def speakers(args: argparse.Namespace) -> dict[str, Speaker]:
    what = [args.text, args.job, args.model, args.voice, args.options]
    if args.blas:
        preloaded = {"LD_PRELOAD": args.library}
        environments = {
            "pip": {},
            "system": preloaded,
            "system-1": {**preloaded, "OPENBLAS_NUM_THREADS": "1"},
            "mlx": {"MLX_PORT_BLAS": "off"},
        }
        names = args.blas.split(",")
        return {name: Speaker(HERE, "mlx_port", what, environments[name], args.cpus) for name in names}
    environment = {"LD_PRELOAD": args.library, "OPENBLAS_NUM_THREADS": str(args.threads)}
    old = args.old.resolve()
    trees = {"old": old, **({"again": old} if args.yardstick else {}), "new": HERE}
    return {
        f"{side} {age}": Speaker(tree, PACKAGES[side], what, environment, args.cpus or "0,1")
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
    parser.add_argument("--job", default="generate")
    parser.add_argument("--yardstick", action="store_true")
    for flag, value in (("--model", ""), ("--voice", ""), ("--options", "{}")):
        parser.add_argument(flag, default=value)
    parser.add_argument("--library", default=next(filter(os.path.exists, LIBRARIES), ""))
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    if sys.platform != "linux" or not (args.old or args.blas):
        print("give --old, a tree to compare with, or --blas, on Linux")
        return
    if "system" in (args.blas or "") and not args.library:
        print(f"none of {', '.join(LIBRARIES)} is there: give --library")
        return
    by_name = speakers(args)
    for number in range(args.rounds):
        keys = list(by_name)
        for key in keys[number % len(keys) :] + keys[: number % len(keys)]:
            by_name[key]()
    load = ", ".join(f"{number:.1f}" for number in os.getloadavg())
    where = f"cores {args.cpus or ('0,1' if args.old else 'all')}"
    print(f"{platform.platform()}, {where}, Python {platform.python_version()}, load {load}")
    for name, speaker in by_name.items():
        print(f"{name}: {speaker.line()}{f'; {speaker.blas}' if args.blas else ''}")
    first = next(iter(by_name))
    ages = ("again", "new") if args.yardstick else ("new",)
    pairs = [(f"{side} old", f"{side} {age}") for side in args.side.split(",") for age in ages]
    for other, name in [(first, name) for name in by_name if name != first] if args.blas else pairs:
        print(f"{name} / {other}, {by_name[name].ratios(by_name[other])}")


if __name__ == "__main__":
    main()
