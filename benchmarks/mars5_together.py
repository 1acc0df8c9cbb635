"""Measure timesteps of several MARS5 diffusions, one by one and in calls that they share.

    python benchmarks/mars5_together.py [--size full|mid|tiny] [--side torch,mlx] [--runs 1,4,8]

`full` is the published shape, `mid` its width with few layers, `tiny` one for a CPU; random weights. Each run
has its own frames, up to --spread fewer than --frames, and its own timestep. The time is of one timestep of
all runs, random numbers of the host included, the median of --rounds by turns; "begin" is the first one of
runs whose lengths are new: on CUDA it captures the step.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import mars5_nar_call as calls

from tts_core.mars5.diffusion import first_noise, make_cells
from tts_core.mars5.spec import MARS5_NAR
from tts_core.nn.noise import HostNoise

SIZES = {
    "full": MARS5_NAR,
    "mid": replace(MARS5_NAR, encoder_layers=1, decoder_layers=2, speaker_layers=1),
    "tiny": calls.TINY,
}


class Bench:
    """Runs of one side. made: so far."""

    def __init__(self, side: SimpleNamespace, work: calls.Work, args: argparse.Namespace):
        self.side, self.work, self.args, self.made = side, work, args, 0
        package = side.code.__name__
        self.diffusion = import_module(f"{package}.reverse").ReverseDiffusion(side.network, side.step)
        self.call = import_module(f"{package}.together").TimestepCall

    def begin(self, count: int) -> list[Any]:
        """Begin runs, each as many timesteps on as it has predecessors."""
        runs = []
        for place in range(count):
            self.made += 1
            noise, frames = HostNoise(self.made), self.args.frames - self.made % self.args.spread
            start = first_noise(noise, self.work.config.n_codebooks, frames, self.work.config.n_classes)
            prompt = None if self.args.shallow else self.work.reference
            cells = make_cells(start[0], start, prompt, n_classes=self.work.config.n_classes)
            given = self.work.text, self.work.reference, cells, self.work.settings
            runs.append(self.diffusion.begin(*given, noise=noise))
            runs[-1].place = place
        return runs

    def timed(self, run: Callable[[], object], times: int) -> float:
        """Milliseconds a time, of the CPU's time with --cpu-time."""
        clock = time.process_time if self.args.cpu_time else time.perf_counter
        self.side.wait()
        begun = clock()
        for _ in range(times):
            run()
        self.side.wait()
        return 1000 * (clock() - begun) / times

    def measure(self, count: int) -> None:
        """Print a row of the table."""
        steps = self.args.calls
        took: dict[str, list[float]] = {"one by one": [], "together": [], "begin, one": [], "begin, all": []}
        for _ in range(self.args.rounds):
            took["begin, one"].append(self.timed(self.begin(1)[0].advance, 1))
            runs = self.begin(count)
            for run in runs:
                run.advance()
            took["one by one"].append(sum(self.timed(run.advance, steps) for run in runs))
            runs = self.begin(count)
            call = self.call(self.side.network, runs, self.side.together)
            took["begin, all"].append(self.timed(call, 1))
            took["together"].append(self.timed(call, steps))
            del call, runs
        text = ", ".join(
            f"{name} {statistics.median(ms):.2f} ({min(ms):.2f} to {max(ms):.2f})"
            for name, ms in took.items()
        )
        rate = 1000 * count / self.args.timesteps / statistics.median(took["together"])
        print(f"{count} runs: ms a timestep: {text}; {rate:.2f} diffusions a second together", flush=True)


def side_of(name: str, work: calls.Work, dtype: str) -> SimpleNamespace:
    """Build a side; MLX waits by reading a number."""
    if name == "torch":
        return calls.torch_side(work, dtype)
    import mlx.core as mx

    side = calls.mlx_side(work, dtype)
    side.wait = mx.synchronize
    return side


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", choices=tuple(SIZES), default="tiny")
    parser.add_argument("--side", default="torch,mlx")
    parser.add_argument("--dtype", choices=tuple(calls.PEAK), default="bfloat16")
    parser.add_argument("--runs", default="1,4,8", help="numbers of runs")
    parser.add_argument("--frames", type=int, default=300, help="new frames, at most")
    parser.add_argument("--spread", type=int, default=20, help="lengths differ by up to this many frames")
    parser.add_argument("--prompt", type=int, default=300, help="frames of the reference")
    parser.add_argument("--text", type=int, default=60, help="text ids")
    parser.add_argument("--shallow", action="store_true", help="do not use the reference as a prompt")
    parser.add_argument("--timesteps", type=int, default=200)
    parser.add_argument("--calls", type=int, default=20, help="timesteps per round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cpu-time", action="store_true", help="count the process's CPU time")
    args = parser.parse_args()
    calls.TINY = SIZES[args.size]
    work = calls.make_work(argparse.Namespace(**{**vars(args), "size": "tiny"}))
    kind = "shallow" if args.shallow else f"deep, {args.prompt} frames of reference"
    print(f"{platform.platform()}, MARS5 NAR {args.size}, {args.dtype}, {kind}, {args.frames} new frames")
    for name in args.side.split(","):
        bench = Bench(side_of(name, work, args.dtype), work, args)
        print(bench.side.name, flush=True)
        bench.measure(2)  # to warm up
        for count in map(int, args.runs.split(",")):
            bench.measure(count)


if __name__ == "__main__":
    main()
