"""Shared by the commands: flags, times of steps by two lengths, the rate of a copy, the machine's line."""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time
from collections.abc import Callable
from importlib import metadata
from typing import Any, NamedTuple

LIBRARIES = ("mlx", "torch", "triton", "numpy", "transformers", "flashinfer", "mlx_audio", "pocketsphinx")
Run = Callable[[int], int | None]  # steps → the steps that were taken, if not as many


class Step(NamedTuple):
    """Milliseconds of a step, and seconds of everything else in the first run and in later ones."""

    milliseconds: float
    start: float
    again: float


def arguments(description: str | None) -> argparse.ArgumentParser:
    """Build a parser whose help is a command's docstring, with its lines as they are."""
    return argparse.ArgumentParser(description=description, formatter_class=argparse.RawTextHelpFormatter)


def seconds(run: Callable[[], Any]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def step(run: Run, lengths: tuple[int, int], runs: int) -> Step:
    """Time a step by the difference of two lengths, the median of some runs.

    Reading the text, the first step and any capture or compilation cancel out. Raises SystemExit if a long
    run ends early.
    """
    taken = {length: length for length in lengths}

    def timed(length: int) -> float:
        started = time.perf_counter()
        taken[length] = run(length) or length
        return time.perf_counter() - started

    first = timed(lengths[0])
    timed(lengths[1])  # peers compile again for another length
    slopes, short = [], []
    for _ in range(runs):
        times = [timed(length) for length in lengths]
        steps = taken[lengths[1]] - taken[lengths[0]]
        if steps < (lengths[1] - lengths[0]) / 2:
            raise SystemExit(f"runs ended early, after {[*taken.values()]} steps")
        slopes.append((times[1] - times[0]) / steps)
        short.append(times[0])
    slope, once = statistics.median(slopes), taken[lengths[0]]
    return Step(1000 * slope, first - slope * once, statistics.median(short) - slope * once)


def copy_rate(side: str) -> float:
    """Bytes per second, read and written, of a copy in the device's memory."""
    if side == "mlx":
        import mlx.core as mx

        whole = mx.zeros(2**30 if mx.default_device().type == mx.DeviceType.gpu else 2**26, dtype=mx.uint8)
        mx.eval(whole)
        return 2 * whole.size / min(seconds(lambda: mx.eval(whole ^ 1)) for _ in range(11))
    import torch

    if not torch.cuda.is_available():
        source = torch.zeros(2**26, dtype=torch.uint8)
        target = torch.empty_like(source)
        return 2 * source.numel() / min(seconds(lambda: target.copy_(source)) for _ in range(11))
    source = torch.empty(2**31, dtype=torch.uint8, device="cuda").random_()
    target, times = torch.empty_like(source), []
    for _ in range(12):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        target.copy_(source)
        stop.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(stop) / 1000)
    return 2 * source.numel() / statistics.median(times)


def machine(*sides: str) -> str:
    """Describe the machine and the versions of what is installed; of "torch" and "mlx" their devices, too."""
    threads = os.environ.get("OMP_NUM_THREADS", "all")
    names = [f"{platform.platform()}, {os.cpu_count()} cores, {threads} threads"]
    names.append(f"Python {platform.python_version()}")
    owners = metadata.packages_distributions()
    names += [f"{name} {metadata.version(owners[name][0])}" for name in LIBRARIES if name in owners]
    if "torch" in sides:
        import torch

        names.append(torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU")
    if "mlx" in sides:
        import mlx.core as mx

        names.append(f"MLX on {mx.default_device()}")
    return ", ".join(names)


def batch_rate(pipeline: Any, text: str, texts: int, frames: int) -> float:
    """Seconds of sound per second of `generate_batch` of a text, `texts` times: the better of two runs."""
    pipeline.generate_batch([text] * texts, max_frames=40)
    found = []
    for _ in range(2):
        started = time.perf_counter()
        spoken = pipeline.generate_batch([text] * texts, max_frames=frames, seed=list(range(texts)))
        found.append(sum(result.audio_seconds for result in spoken) / (time.perf_counter() - started))
    return max(found)
