"""Compare the peak memory of Dia's generations with the estimate; a process per job, random weights.

    python benchmarks/memory.py [--size voice|full] [--side torch|mlx] [--device cpu|cuda] [--dtype float32]
    [--jobs 176x200,1000x400,176x200x4,...]

A job is BYTESxFRAMES[xBATCH[xPROMPT FRAMES]]; `voice` is the embedded voice's shape. The peak is the growth
of the resident set since the imports on a CPU, and that of torch's or MLX's allocator on CUDA (with torch's
reserved bytes). Exits with 1 if an estimate is off by more than 15 % and more than 64 MB.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from importlib import metadata
from typing import Any

import numpy as np
from peaks import Resident

from converters.published import open_published
from tts_core.codecs import dac
from tts_core.codecs.dac import DAC_44KHZ
from tts_core.codecs.policy import own
from tts_core.dia.memory import Estimate, Job, estimate
from tts_core.dia.shapes import is_norm, parameter_shapes
from tts_core.dia.spec import DIA_0626
from tts_core.memory.machine import Machine
from tts_core.voice.embedded import CODEC, DIA

VOICE = open_published([DIA], codec=CODEC, offline=True).parts
SIZES = {"full": (DIA_0626, DAC_44KHZ), "voice": (VOICE["dia"].config, VOICE["dac"].config)}
JOBS = {
    "voice": "60x50,250x600,100x200x8,100x100x1x200",
    "full": "176x200,1024x300,176x100x4,176x100x1x400",
}


def codec_weight(name: str, shape: tuple[int, ...]) -> float:
    """Scale of a random tensor that keeps the size of activations."""
    return 1.0 if name.endswith(".alpha") else max(1, int(np.prod(shape[1:]))) ** -0.5


def dia_weight(name: str, shape: tuple[int, ...]) -> float:
    return 0.5 if "embed" in name else shape[-1] ** -0.5


class Process(Resident):
    """Resident set with the interface of allocators' meters."""

    def peaks(self) -> dict[str, int]:
        return {"resident": self.peak()}


def torch_side(size: str, dtype: str, device: str) -> tuple[Any, Any]:
    import torch

    from torch_ref.codecs.dac import Dac
    from torch_ref.dia.dia import Dia
    from torch_ref.dia.pipeline import compose

    class Allocated:
        def restart(self) -> None:
            torch.cuda.reset_peak_memory_stats()

        def peaks(self) -> dict[str, int]:
            return {
                "allocated": torch.cuda.max_memory_allocated(),
                "reserved": torch.cuda.max_memory_reserved(),
            }

    meter = Process() if device == "cpu" else Allocated()
    config, codec = SIZES[size]
    with torch.device("meta"):
        networks = Dia(config), Dac(codec)
    torch.manual_seed(0)

    def tensor(name: str, shape: tuple[int, ...], scale: float, kind: torch.dtype) -> torch.Tensor:
        if is_norm(name):
            return torch.ones(shape, device=device)
        made = torch.empty(shape, dtype=kind, device=device).normal_(0, scale)
        if name == "logits_dense.weight":
            made[config.eos_token_id] = 0  # never the likeliest, so every run has its full length
        return made

    kind = getattr(torch, dtype)
    shapes = parameter_shapes(config)
    networks[0].load_state_dict(
        {name: tensor(name, shape, dia_weight(name, shape), kind) for name, shape in shapes.items()},
        assign=True,
    )
    shapes = dac.parameter_shapes(codec)
    networks[1].load_state_dict(
        {
            name: tensor(name, shape, codec_weight(name, shape), torch.float32)
            for name, shape in shapes.items()
        },
        assign=True,
    )
    return compose(networks[0].to(device).eval(), networks[1].to(device).eval()), meter


def mlx_side(size: str, dtype: str, device: str) -> tuple[Any, Any]:
    import mlx.core as mx

    from mlx_port.codecs.dac import Dac
    from mlx_port.dia.dia import Dia
    from mlx_port.dia.pipeline import compose

    class Allocated:
        def restart(self) -> None:
            mx.reset_peak_memory()

        def peaks(self) -> dict[str, int]:
            return {"allocated": mx.get_peak_memory()}

    meter = Process() if mx.default_device() == mx.cpu else Allocated()
    config, codec = SIZES[size]
    mx.random.seed(0)
    networks = Dia(config), Dac(codec)

    def tensor(name: str, shape: tuple[int, ...], scale: float, kind: mx.Dtype) -> mx.array:
        if is_norm(name):
            return mx.ones(shape)
        made = mx.random.normal(shape, kind, 0, scale)
        if name == "logits_dense.weight":
            made[config.eos_token_id] = 0
        return made

    for name, shape in parameter_shapes(config).items():
        value = tensor(name, shape, dia_weight(name, shape), getattr(mx, dtype))
        mx.eval(value)
        networks[0].load_weights([(name, value)], strict=False)
    for name, shape in dac.parameter_shapes(codec).items():
        axes = dac.mlx_axes(name, len(shape))
        laid = tuple(shape[axis] for axis in axes) if axes else shape
        value = tensor(name, laid, codec_weight(name, shape), mx.float32)
        mx.eval(value)
        networks[1].load_weights([(name, value)], strict=False)
    mx.clear_cache()
    return compose(*networks), meter


def measure(size: str, side: str, dtype: str, device: str, job: Job) -> dict[str, int]:
    """Run one job. Returns its peaks by meter."""
    pipeline, meter = (torch_side if side == "torch" else mlx_side)(size, dtype, device)
    pipeline.engine.codec.policy = own(backend(side, device))  # as a loaded model has it, given enough memory
    random = np.random.default_rng(0)
    channels = pipeline.config.decoder_config.num_channels
    entries = pipeline.codec_config.codebook_size
    prompt = random.integers(0, entries, (channels, job.prompt_frames), np.int32)
    codes = prompt if job.prompt_frames else None
    # encode a wave of the prompt's length, as for a recording
    wave = random.normal(0, 0.1, job.prompt_frames * pipeline.codec_config.hop_length).astype(np.float32)
    text = ("[S1] " + "so it goes " * 200)[: job.text_bytes + 3]
    meter.restart()
    if job.prompt_frames:
        pipeline.engine.encode(wave)
    if job.batch == 1 and codes is None:
        made = pipeline.generate(text, seed=1, max_frames=job.frames, piece_seconds=None)
    else:
        prompts = [codes] * job.batch
        made = pipeline.generate_batch([text] * job.batch, prompts=prompts, seed=1, max_frames=job.frames)[0]
    assert made.codes.shape[1] == job.frames, f"the text ended by itself after {made.codes.shape[1]} frames"
    return meter.peaks()


def child(arguments: list[str]) -> None:
    size, side, dtype, device, *numbers = arguments
    text, frames, prompt, batch = map(int, numbers)
    print(json.dumps(measure(size, side, dtype, device, Job(text, frames, prompt, batch))))


def off(guess: Estimate, peak: int) -> bool:
    error = abs(guess.total - peak)
    return error > 0.15 * peak and error > 64e6


def backend(side: str, device: str) -> str:
    if side == "torch":
        return f"torch-{device}"
    import mlx.core as mx

    if mx.default_device() == mx.cpu:
        return "mlx-cpu"
    return "mlx-metal" if mx.metal.is_available() else "mlx-cuda"


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--size", choices=("voice", "full"), default="voice")
    parser.add_argument("--side", choices=("torch", "mlx"), default="torch")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16", "float16"))
    parser.add_argument("--jobs")
    args = parser.parse_args()
    where = backend(args.side, args.device)
    versions = {name: metadata.version(name) for name in ("torch", "mlx") if name == args.side}
    print(f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}, {versions}")
    print(f"{args.size}, {args.dtype}, {where}; MB")
    config, codec = SIZES[args.size]
    wrong = 0
    for spec in (args.jobs or JOBS[args.size]).split(","):
        given = [int(number) for number in spec.split("x")]
        text, frames, batch, prompt = given + [0, 0, 1, 0][len(given) :]
        job = Job(text, frames, prompt, batch)
        command = [sys.executable, __file__, "--child", args.size, args.side, args.dtype, args.device]
        numbers = [job.text_bytes, job.frames, job.prompt_frames, job.batch]
        done = subprocess.run([*command, *map(str, numbers)], check=True, stdout=subprocess.PIPE, text=True)
        peaks = json.loads(done.stdout.splitlines()[-1])
        guess = estimate({"dia": config, "dac": codec}, job, Machine(args.dtype, where))
        peak = next(iter(peaks.values()))
        wrong += off(guess, peak)
        measured = ", ".join(f"{name} {value / 1e6:.0f}" for name, value in peaks.items())
        terms = ", ".join(f"{term.name} {term.bytes / 1e6:.0f}" for term in guess.terms)
        error = 100 * (guess.total / peak - 1)
        mark = "  OFF" if off(guess, peak) else ""
        print(
            f"{spec:<16} {measured}; estimate {guess.total / 1e6:.0f} ({error:+.1f} %): {terms}{mark}",
            flush=True,
        )
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
