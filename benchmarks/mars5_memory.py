"""Compare the peak memory of MARS5 generations with the estimate; a process per job, random weights.

    python benchmarks/mars5_memory.py [--size middle|full] [--side torch|mlx] [--device cpu|cuda]
    [--dtype float32] [--jobs 300x75,600x300xdeep,...]

A job is NEW FRAMESxREFERENCE FRAMES[xdeep]; the diffusion takes two steps. The peak is the growth of the
resident set since the imports on a CPU, and that of torch's or MLX's allocator on CUDA. Exits with 1 if an
estimate is off by more than 15 % and 64 MB.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from dataclasses import replace
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import numpy as np
from peaks import Allocated, Resident

from tts_core import models
from tts_core.codecs.encodec import ENCODEC_24KHZ
from tts_core.codecs.vocos import VOCOS_ENCODEC_24KHZ
from tts_core.mars5.memory import Mars5Job, estimate
from tts_core.mars5.spec import MARS5_AR, MARS5_NAR
from tts_core.mars5.tokens import SPEECH_FILE, TEXT_FILE, CodecVocabulary
from tts_core.memory.machine import Machine
from tts_core.prompt import Prompt

TEXT, SAID = "so it goes and goes until the end of it all", "and so it went, day after day, year after year"
JOBS = {"middle": "200x75,600x300,300x300xdeep", "full": "150x75,300x450xdeep"}
# without merges: an id is a frame
DOCUMENTS = {
    TEXT_FILE: "minbpe v1\n\n2\n<|startoftext|> 256\n<|endoftext|> 257\n",
    SPEECH_FILE: "minbpe v1\n\n1\n<|endofspeech|> 1024\n",
}
VOCABULARY = CodecVocabulary.read(DOCUMENTS[TEXT_FILE], DOCUMENTS[SPEECH_FILE], vocab_size=258 + 1025)


def configs(size: str) -> dict[str, Any]:
    """Configurations of all parts, with a small vocabulary. size "middle" has smaller transformers."""
    ar = replace(MARS5_AR, vocab_size=VOCABULARY.size)
    nar = replace(MARS5_NAR, text_rows=VOCABULARY.first_speech + 1)
    if size == "middle":
        ar = replace(ar, hidden_size=768, intermediate_size=1792, num_hidden_layers=8, num_attention_heads=12)
        ar = replace(ar, speaker_heads=12, speaker_intermediate_size=2304)
        nar = replace(nar, hidden_size=512, intermediate_size=1536, encoder_layers=3, decoder_layers=5)
        nar = replace(nar, num_attention_heads=8, speaker_heads=8, speaker_intermediate_size=1536)
    return {"mars5": ar, "mars5_nar": nar, "encodec": ENCODEC_24KHZ, "vocos": VOCOS_ENCODEC_24KHZ}


class RandomParts:
    """Stand-in for the loaders' Parts with random weights; the end is never drawn."""

    def __init__(self, side: str, configs: dict[str, Any], dtype: str, device: str):
        self.side, self.configs, self.dtype_name = side, configs, dtype
        self.device: Any = device
        self.documents = {"mars5": DOCUMENTS}
        self.folder = Path()
        if side == "torch_ref":
            import torch

            self.device, self.dtype = torch.device(device), getattr(torch, dtype)
            self.random = torch.Generator(self.device).manual_seed(0)
        else:
            import mlx.core as mx

            mx.random.seed(0)

    def dtype_of(self, kind: str) -> str:
        return self.dtype_name

    def quantization_of(self, kind: str) -> dict[str, Any] | None:
        return None

    def array(self, kind: str, name: str, shape: tuple[int, ...]) -> Any:
        """Draw a weight on the device: NumPy takes half a minute for a billion numbers."""
        scale, wide = max(1, int(np.prod(shape[1:]))) ** -0.5, models.network(kind).stays_float32(name)
        dtype = "float32" if wide else self.dtype_name
        if kind == "mars5" and name == "ar.output.weight":
            rows = np.zeros((shape[0], 1), np.float32)
            rows[: VOCABULARY.first_speech], rows[VOCABULARY.first_speech : VOCABULARY.end] = scale, 4 * scale
            scale = rows
        norm = "norm" in name and name.endswith("weight")
        if self.side == "torch_ref":
            import torch

            kept = getattr(torch, dtype)
            if norm:
                return torch.ones(shape, dtype=kept, device=self.device)
            made = torch.randn(shape, dtype=kept, device=self.device, generator=self.random)
            return made.mul_(torch.as_tensor(scale, dtype=kept, device=self.device))
        import mlx.core as mx

        kept, axes = getattr(mx, dtype), models.network(kind).mlx_axes(self.configs[kind], name, len(shape))
        if axes is not None:
            shape = tuple(shape[axis] for axis in axes)
        if norm:
            value = mx.ones(shape, dtype=kept)
        else:
            value = mx.random.normal(shape, dtype=kept) * mx.array(scale).astype(kept)
        mx.eval(value)
        return value

    def network(self, kind: str, cls: type[Any]) -> Any:
        made = cls
        shapes = models.network(kind).parameter_shapes(self.configs[kind])
        if self.side == "torch_ref":
            import torch

            with torch.device("meta"):
                network = made(self.configs[kind])
            tensors = {name: self.array(kind, name, shape) for name, shape in shapes.items()}
            network.load_state_dict(tensors, strict=True, assign=True)
            return network.to(self.device).eval()
        network = made(self.configs[kind])
        for name, shape in shapes.items():
            network.load_weights([(name, self.array(kind, name, shape))], strict=False)
        network.eval()
        return network


def job_of(spec: str) -> Mars5Job:
    """Parse a job and count its prompt's ids."""
    frames, reference, *deep = spec.split("x")
    text = len(
        VOCABULARY.deep(TEXT, SAID, np.zeros(0, int)).tokens if deep else VOCABULARY.shallow(TEXT).tokens
    )
    ids = text + int(reference) * bool(deep)
    longest = ids + int(frames) + 1
    return Mars5Job(ids, int(frames), int(reference), bool(deep), max_len=longest, text_ids=text)


def measure(size: str, side: str, dtype: str, device: str, spec: str) -> int:
    """Run one job. Returns its peak in bytes."""
    job, parts = job_of(spec), RandomParts(side, configs(size), dtype, device)
    on_cpu = device == "cpu"
    meter: Any = Resident() if on_cpu else Allocated(side, [parts.device] if side == "torch_ref" else [])
    pipeline = import_module(f"{side}.mars5.pipeline").assemble(parts)
    if side == "mlx_port":
        import mlx.core as mx

        mx.clear_cache()
    meter.restart()
    wave = np.random.default_rng(0).normal(0, 0.1, job.prompt_frames * 320).astype(np.float32)
    made = pipeline.generate(
        TEXT,
        prompt=Prompt.of(audio=wave, text=SAID if job.deep else None),
        timesteps=2,
        generate_max_len_override=job.max_len,
        as_written=True,
        seed=1,
    )
    assert made.codes.shape[1] == job.frames, f"{made.codes.shape[1]} frames"
    return meter.peak()


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(measure(*sys.argv[2:])))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--size", choices=("middle", "full"), default="middle")
    parser.add_argument("--side", choices=("torch", "mlx"), default="torch")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16", "float16"))
    parser.add_argument("--jobs")
    args = parser.parse_args()
    side = {"torch": "torch_ref", "mlx": "mlx_port"}[args.side]
    where = f"{args.side}-{args.device}"
    print(f"{platform.platform()}, {os.cpu_count()} cores, {args.side} {metadata.version(args.side)}")
    print(f"{args.size}, {args.dtype}, {where}; MB")
    wrong = 0
    for spec in (args.jobs or JOBS[args.size]).split(","):
        command = [sys.executable, __file__, "--child", args.size, side, args.dtype, args.device, spec]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        peak = json.loads(done.stdout.splitlines()[-1])
        guess = estimate(configs(args.size), job_of(spec), Machine(args.dtype, where))
        error = abs(guess.total - peak)
        off = error > 0.15 * peak and error > 64e6
        wrong += off
        terms = ", ".join(f"{term.name} {term.bytes / 1e6:.0f}" for term in guess.terms)
        line = f"{peak / 1e6:.0f}; estimate {guess.total / 1e6:.0f} ({100 * (guess.total / peak - 1):+.1f} %)"
        print(f"{spec:<14} {line}: {terms}{'  OFF' if off else ''}", flush=True)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
