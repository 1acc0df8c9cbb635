"""Compare the peak memory of generations with the estimate; a process per job, random weights.

    python benchmarks/memory.py [--model dia|dia2|mars5|metavoice|qwen3] [--size SIZE] [--side torch|mlx]
        [--device cpu|cuda] [--dtype float32] [--bits 8|4] [--jobs JOB,JOB,...]

Without --model, all of them. Sizes, and what a job is, with the limit of an estimate's error besides 64 MB:

    dia        voice (embedded), full   BYTESxFRAMES[xBATCH[xPROMPT FRAMES]], 15 %
    dia2       tiny, 1b, 2b             FRAMES[xTEXTS[xFRAMES OF A RECORDING]], with guidance, 15 %
    mars5      middle, full             NEW FRAMESxREFERENCE FRAMES[xdeep], two timesteps, 15 %
    metavoice  middle, full; --bits     FRAMES[xBATCH][xmbd], 15 %
    qwen3      tiny, 0.6b, 1.7b         FRAMES[xPOSITIONS OF THE PROMPT[xFRAMES OF A RECORDING]], 6 %

The peak is the growth of the resident set since the imports on a CPU, and that of torch's or MLX's allocator
on CUDA, which leaves out what graphs of the codec keep; there MetaVoice speaks twice, with the real-time
factor and the seconds of each stage of the second time. Codecs decode in float32. Exits with 1 if an estimate
is off by more than its limit.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.lib.memory_jobs import MODELS
from benchmarks.lib.random_networks import MEMORY, PACKAGES
from benchmarks.lib.timing import arguments, machine
from tts_core.codecs.memory import GRAPHS
from tts_core.memory.machine import Machine


class Resident:
    """Growth of the process's resident set since this object was created."""

    def __init__(self) -> None:
        self.base = self._kilobytes("VmRSS")

    def restart(self) -> None:
        Path("/proc/self/clear_refs").write_text("5")

    def peak(self) -> int:
        return 1024 * (self._kilobytes("VmHWM") - self.base)

    def _kilobytes(self, name: str) -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(name))


class Allocated:
    """Peak of a side's allocator. device: [a torch device] in PyTorch, empty in MLX."""

    def __init__(self, side: str, device: Sequence[Any]):
        self.memory, self.device = import_module(MEMORY[side]), device

    def restart(self) -> None:
        self.memory.reset_peak(*self.device)

    def peak(self) -> int:
        return self.memory.peak_bytes(*self.device)


def devices(given: argparse.Namespace) -> list[Any]:
    """Arguments of a side's functions of memory."""
    if given.side == "mlx":
        return []
    import torch

    return [torch.device(given.device)]


def backend(given: argparse.Namespace) -> str:
    return import_module(MEMORY[given.side]).backend_name(*devices(given))


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """Run one job. Returns its peak in bytes, and how fast it was if the model tells."""
    package, model = PACKAGES[given.side], MODELS[given.model]
    import_module(f"{package}.{given.model}.pipeline")
    given.backend = backend(given)
    on_cpu = given.backend.endswith("cpu")
    meter: Any = Resident() if on_cpu else Allocated(given.side, devices(given))
    speak = model.build(given, given.child)
    meter.restart()
    made, found = speak(), {"peak": meter.peak()}
    if made is None or on_cpu:
        return found
    return {**found, "rtf": made.real_time_factor, "seconds": dict(made.stage_seconds)}


def parsed() -> argparse.Namespace:
    parser = arguments(__doc__)
    parser.add_argument("--model", choices=tuple(MODELS))
    parser.add_argument("--size")
    parser.add_argument("--side", choices=("torch", "mlx"), default="torch")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--dtype", choices=("float32", "bfloat16", "float16"))
    parser.add_argument("--bits", type=int, choices=(8, 4), help="of MetaVoice's first stage in MLX")
    parser.add_argument("--jobs")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.model is None:
        if given.size or given.jobs:
            parser.error("--model: give one with --size or --jobs")
    elif given.size and given.size not in MODELS[given.model].jobs:
        parser.error(f"--size: {given.model} has {', '.join(MODELS[given.model].jobs)}")
    return given


def complete(given: argparse.Namespace, name: str) -> argparse.Namespace:
    """Fill in a model's defaults."""
    model, size = MODELS[name], given.size or next(iter(MODELS[name].jobs))
    own = {"model": name, "size": size, "dtype": given.dtype or model.dtype}
    return argparse.Namespace(**{**vars(given), **own, "jobs": given.jobs or model.jobs[size]})


def main() -> None:
    given = parsed()
    if given.child:
        print(json.dumps(measure(complete(given, given.model))))
        return
    wrong = [compare(complete(given, name)) for name in ([given.model] if given.model else MODELS)]
    sys.exit(1 if any(wrong) else 0)


def compare(given: argparse.Namespace) -> int:
    """Run the jobs of a model. Returns how many estimates are off."""
    model, where = MODELS[given.model], backend(given)
    how = {"group_size": 64, "bits": given.bits, "mode": "affine"} if given.bits else None
    print(machine())
    bits = f", {given.bits} bits" if given.bits else ""
    print(f"{given.model} {given.size}, {given.dtype}{bits}, {where}; MB")
    wrong, estimate = 0, import_module(f"tts_core.{given.model}.memory").estimate
    for spec in given.jobs.split(","):
        command = [sys.executable, __file__, *sys.argv[1:], "--model", given.model, "--child", spec]
        environment = os.environ | dict(model.environment)
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
        found = json.loads(done.stdout.splitlines()[-1])
        assumed = Machine(given.dtype, where, quantization=how, codec_precision="float32")
        guess, peak = estimate(model.configs(given.size, spec), model.parse(spec), assumed), found["peak"]
        shown = guess.total - sum(term.bytes for term in guess.terms if term.name == GRAPHS)
        off = abs(shown - peak) > max(model.bound * peak, 64e6)
        wrong += off
        terms = ", ".join(f"{term.name} {term.bytes / 1e6:.0f}" for term in guess.terms)
        percent = 100 * (shown / peak - 1)
        line = f"{peak / 1e6:.0f}; estimate {shown / 1e6:.0f} ({percent:+.1f} %): {terms}"
        print(f"{spec:<16} {line}{'  OFF' if off else ''}", flush=True)
        if "rtf" in found:
            stages = ", ".join(f"{name} {took:.3f} s" for name, took in found["seconds"].items())
            print(f"{'':<16} RTF {found['rtf']:.3f}: {stages}", flush=True)
    return wrong


if __name__ == "__main__":
    main()
