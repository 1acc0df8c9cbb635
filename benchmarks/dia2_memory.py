"""Compare the peak memory of Dia2's generations with the estimate; a process per job, random weights.

    python benchmarks/dia2_memory.py [--size 2b|1b|tiny] [--side torch|mlx] [--device cpu|cuda]
        [--dtype bfloat16] [--jobs 60,40x4,40x1x125]

A job is FRAMES[xTEXTS[xFRAMES OF A RECORDING]], with guidance. The peak is the growth of the resident set
since the imports on a CPU, and that of torch's or MLX's allocator on CUDA. Exits with 1 if an estimate is off
by more than 15 % and more than 64 MB.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from importlib import import_module, metadata
from typing import Any

import numpy as np
from dia2_networks import SIZES, codec_of, engine
from peaks import Allocated, Resident

from tts_core.dia2.memory import Dia2Job, estimate
from tts_core.memory.machine import Machine
from tts_core.prompt import Prompt, Reference

SAMPLES = 1920  # a frame


def parse(spec: str) -> Dia2Job:
    frames, *rest = map(int, spec.split("x"))
    texts, recording = (*rest, *(1, 0)[len(rest) :])
    return Dia2Job(frames, recording, texts=texts)


def measure(size: str, side: str, device: str, dtype: str, spec: str) -> int:
    """Run one job. Returns its peak in bytes."""
    package, job = {"torch": "torch_ref", "mlx": "mlx_port"}[side], parse(spec)
    import_module(f"{package}.dia2.pipeline")
    meter: Any = Resident() if device == "cpu" else Allocated(package, _device(side, device))
    built, _ = engine(side, SIZES[size], dtype, device=device)
    pipeline = import_module(f"{package}.dia2.pipeline").Dia2Pipeline(built)
    prompt = None
    if job.prefix_frames:
        sound = np.random.default_rng(0).normal(0, 0.1, SAMPLES * job.prefix_frames).astype(np.float32)
        said = "so it goes on " * (job.prefix_frames // 12)
        prompt = Prompt((Reference(sound, said, sample_rate=24000),))
    text = "[S1] " + "so it goes on " * (job.frames // 20 + 2)
    meter.restart()
    found = pipeline.generate_batch([text] * job.texts, prompts=prompt, seed=1, max_frames=job.frames)
    assert all(one.codes.shape[1] == job.frames for one in found), "a text ended by itself"
    return meter.peak()


def _device(side: str, device: str) -> list[Any]:
    if side == "mlx":
        return []
    import torch

    return [torch.device(device)]


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(measure(*sys.argv[2:])))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--size", choices=tuple(SIZES), default="tiny")
    parser.add_argument("--side", choices=("torch", "mlx"), default="torch")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--dtype", default="bfloat16", choices=("float32", "bfloat16", "float16"))
    parser.add_argument("--jobs", default="60,40x4,40x1x125")
    args = parser.parse_args()
    where = f"{args.side}-{args.device}"
    print(f"{platform.platform()}, {os.cpu_count()} cores, {args.side} {metadata.version(args.side)}")
    print(f"Dia2 {args.size}, {args.dtype}, {where}; MB")
    wrong, config = 0, SIZES[args.size]
    for spec in args.jobs.split(","):
        command = [sys.executable, __file__, "--child", args.size, args.side, args.device, args.dtype, spec]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        peak = json.loads(done.stdout.splitlines()[-1])
        configs = {"dia2": config, "mimi": codec_of(config)}
        guess = estimate(configs, parse(spec), Machine(args.dtype, where))
        off = abs(guess.total - peak) > max(0.15 * peak, 64e6)
        wrong += off
        terms = ", ".join(f"{term.name} {term.bytes / 1e6:.0f}" for term in guess.terms)
        percent = 100 * (guess.total / peak - 1)
        line = f"{peak / 1e6:.0f}; estimate {guess.total / 1e6:.0f} ({percent:+.1f} %): {terms}"
        print(f"{spec:<10} {line}{'  OFF' if off else ''}", flush=True)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
