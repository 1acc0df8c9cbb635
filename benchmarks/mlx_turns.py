"""Time mlx_port against an older mlx_port and mlx-audio by turns, on one machine in one run.

    python benchmarks/mlx_turns.py [--models dia,dia-8,dia-4bit,metavoice,mars5] [--old FOLDER] [--peer]
        [--rounds 3] [--size full|tiny]

Weights are random at the published shapes, in bfloat16; --old names a checkout of another commit. Each
model has one process for each tree, which stay loaded and take turns; a figure is the median over rounds of
milliseconds per decoder step (Dia, one text or 8; 4 bits), per guided token (MetaVoice) or per id (MARS5):
the difference of two lengths, sampling included. `linear layers`: only the two-row products of a step.
--peer adds mlx-audio's Dia (`pip install mlx-audio==0.6.2`).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

LENGTHS = {
    "dia": (40, 240),
    "dia-8": (40, 240),
    "dia-4bit": (40, 240),
    "metavoice": (40, 340),
    "mars5": (40, 240),
}
TINY_LENGTHS = {name: (4, 12) for name in LENGTHS}
Run = Callable[[int], object]  # of this many steps


def dia(size: str, *, texts: int = 1, **bits: int) -> Run:
    import dia_step

    generate, _ = dia_step.mlx_side("full" if size == "full" else "voice", "bfloat16", **bits)
    return lambda frames: generate(texts, frames)


def peer(size: str) -> Run:
    import dia_step

    generate, _ = dia_step.mlx_audio_side(size, "bfloat16")
    return lambda frames: generate(1, frames)


def metavoice(size: str) -> Run:
    import metavoice_step

    config = metavoice_step.METAVOICE_FIRST_STAGE if size == "full" else metavoice_step.TINY
    _, generate, *_ = metavoice_step.mlx_side(config, "bfloat16", 16)
    return lambda tokens: generate(3.0, tokens)


def mars5(size: str) -> Run:
    step: Any = import_module("mars5_ar_step")

    full = size == "full"
    kind = vars(step).get("Mars5Options") or step.Mars5Settings  # its name in older commits
    options = kind() if full else kind(top_p=0.9)
    job = step.Job(step.MARS5_AR, step.MARS5_TEXT_IDS, options) if full else step.Job(step.TINY, 100, options)
    older = {"port": True, "plain": False} if "plain" in step.mlx_rows.__code__.co_varnames else {}
    [(_, generate, _)] = step.mlx_rows(job, "bfloat16", [], **older)
    return lambda draws: generate(draws)


MODELS: dict[str, Callable[[str], Run]] = {
    "dia": dia,
    "dia-8": lambda size: dia(size, texts=8),
    "dia-4bit": lambda size: dia(size, bits=4),
    "metavoice": metavoice,
    "mars5": mars5,
    "peer": peer,
}


def linear_layers() -> float:
    """Milliseconds of a full Dia step's matrix products of two rows in MLX by themselves."""
    import dia_step
    import mlx.core as mx

    shapes = [
        shape for name, shape in dia_step.parameter_shapes(dia_step.FULL).items() if dia_step._in_a_step(name)
    ]
    weights = [mx.random.normal(shape).astype(mx.bfloat16) for shape in shapes]
    x = {width: mx.random.normal((2, width)).astype(mx.bfloat16) for _, width in shapes}
    mx.eval(weights, x)
    times = []
    for _ in range(20):
        started = time.perf_counter()
        mx.eval([x[weight.shape[1]] @ weight.T for weight in weights])
        mx.synchronize()
        times.append(1000 * (time.perf_counter() - started))
    return statistics.median(times[5:])


def worker(model: str, size: str) -> None:
    """Build a model with the code of the current folder; then time one round for each line that arrives."""
    sys.path[0] = str(Path.cwd() / "benchmarks")
    started = time.perf_counter()
    short, long = (LENGTHS if size == "full" else TINY_LENGTHS)[{"peer": "dia"}.get(model, model)]
    run = MODELS[model](size)
    run(short)
    run(short)
    print(json.dumps({"start": time.perf_counter() - started}), flush=True)
    for _ in sys.stdin:
        times = []
        for length in (short, long):
            started = time.perf_counter()
            run(length)
            times.append(time.perf_counter() - started)
        print(json.dumps({"step": 1000 * (times[1] - times[0]) / (long - short)}), flush=True)


class Worker:
    """A process that holds a model of one tree."""

    def __init__(self, name: str, model: str, tree: Path, size: str):
        self.name, self.steps = name, list[float]()
        command = [sys.executable, str(Path(__file__).resolve()), "--worker", model, "--size", size]
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(tree), os.environ.get("PYTHONPATH", "")])
        }
        self.process = subprocess.Popen(
            command, cwd=tree, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name}: ended with code {self.process.wait()}")
        return json.loads(line)

    def time(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        self.steps.append(self.answer()["step"])

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--models", default="dia,dia-8,dia-4bit,metavoice,mars5")
    parser.add_argument("--old", type=Path)
    parser.add_argument("--peer", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--size", choices=("full", "tiny"), default="full")
    parser.add_argument("--worker", choices=list(MODELS), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        worker(args.worker, args.size)
        return
    print(f"{platform.platform()}, Python {platform.python_version()}, MLX {metadata.version('mlx')}")
    here = Path(__file__).resolve().parents[1]
    workers = [one for model in args.models.split(",") for one in workers_of(model, args, here)]
    starts = [one.answer()["start"] for one in workers]  # they compile kernels at the same time
    if args.size == "full":
        print(f"linear layers, 2 rows: {linear_layers():.3f} ms", flush=True)
    for _ in range(args.rounds):
        for one in workers:
            one.time()
    for one, start in zip(workers, starts, strict=True):
        every = ", ".join(f"{step:.2f}" for step in one.steps)
        middle = statistics.median(one.steps)
        print(f"{one.name:<28} {middle:>8.3f} ms ({every}), start {start:.1f} s", flush=True)
        one.close()


def workers_of(model: str, args: argparse.Namespace, here: Path) -> list[Worker]:
    """Start a model's processes."""
    found = [Worker(f"{model}, mlx_port", model, here, args.size)]
    if args.old and model != "dia-4bit":
        found.append(Worker(f"{model}, {args.old.name}", model, args.old.resolve(), args.size))
    if args.peer and model == "dia":
        found.append(Worker("dia, mlx-audio", "peer", here, args.size))
    return found


if __name__ == "__main__":
    main()
