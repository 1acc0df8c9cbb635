"""Compare the peak memory of MetaVoice generations with the estimate; a process per job, random weights.

On a GPU, also print the real-time factor and the seconds of each stage of a second run.

    python benchmarks/metavoice_memory.py [--size middle|full] [--side torch|mlx] [--device cpu|cuda]
    [--dtype float32] [--bits 8|4] [--jobs 100x200,100x60xmbd,...]

A job is FRAMES[xBATCH][xmbd]. The peak is the growth of the resident set since the imports on a CPU, and that
of torch's or MLX's allocator on CUDA. Exits with 1 if an estimate is off by more than 15 % and 64 MB.
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
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from peaks import MEMORY, Allocated, Resident

from tts_core import models
from tts_core.codecs.encodec import ENCODEC_24KHZ
from tts_core.codecs.mbd import PUBLISHED_UNET, MbdBandConfig, MbdConfig, MbdScheduleConfig
from tts_core.codecs.vocos import VOCOS_ENCODEC_24KHZ
from tts_core.memory.machine import Machine
from tts_core.metavoice.config import CODEBOOK_SIZE, END_OF_AUDIO, is_quantisable
from tts_core.metavoice.memory import MetaVoiceJob, estimate
from tts_core.metavoice.spec import METAVOICE_FIRST_STAGE, METAVOICE_SECOND_STAGE, METAVOICE_SPEAKER_ENCODER
from tts_core.metavoice.text import PATTERN, Tokenizer
from tts_core.prompt import Prompt

MIDDLE = replace(
    METAVOICE_FIRST_STAGE,
    hidden_size=768,
    intermediate_size=2048,
    num_hidden_layers=8,
    num_attention_heads=6,
)
SCHEDULE = MbdScheduleConfig(1e-5, 2.9e-2, 7.5, 1000, 5.0, 1.0)
TEXT = "so it goes and goes until the end of it all, and then it goes on."
JOBS = {"middle": "200,600,150x4,60xmbd", "full": "200,900,200x4,200xmbd"}


def configs(size: str, decoder: str) -> dict[str, Any]:
    """Configurations of all parts. size "middle" has a smaller first stage and smaller bands of diffusion."""
    unet = PUBLISHED_UNET if size == "full" else replace(PUBLISHED_UNET, hidden=16)
    band = MbdBandConfig(unet, SCHEDULE, None)
    bands = {"mbd": MbdConfig(24_000, (band,) * (4 if size == "full" else 2))} if decoder == "mbd" else {}
    return {
        "metavoice": METAVOICE_FIRST_STAGE if size == "full" else MIDDLE,
        "metavoice_second_stage": METAVOICE_SECOND_STAGE,
        "metavoice_speaker_encoder": METAVOICE_SPEAKER_ENCODER,
        "vocos": VOCOS_ENCODEC_24KHZ,
        "encodec": ENCODEC_24KHZ,
    } | bands


def tokenizer(offset: int) -> str:
    """Build a tokenizer of single bytes."""
    ranks = {bytes([byte]): byte for byte in range(256)}
    return json.dumps(Tokenizer(PATTERN, ranks, {"<|endoftext|>": 256}, offset).to_dict())


class RandomParts:
    """Stand-in for the loaders' Parts with random weights; only codes are drawn."""

    def __init__(self, side: str, configs: dict[str, Any], dtype: str, device: str, bits: int | None):
        self.side, self.configs, self.dtype_name, self.bits = side, configs, dtype, bits
        self.device: Any = device
        self.documents = {
            "metavoice": {"tokenizer.json": tokenizer(END_OF_AUDIO + 1)},
            "metavoice_second_stage": {"tokenizer.json": tokenizer(CODEBOOK_SIZE + 1)},
        }
        self.bands: dict[str, Any] = {}  # on the host, if the device has its own memory
        self.folder = Path()
        if side == "torch_ref":
            import torch

            self.device, self.dtype = torch.device(device), getattr(torch, dtype)

    def dtype_of(self, kind: str) -> str:
        return self.dtype_name

    def quantization_of(self, kind: str) -> dict[str, Any] | None:
        return {"group_size": 64, "bits": self.bits, "mode": "affine"} if self.bits else None

    def array(self, kind: str, name: str, shape: tuple[int, ...]) -> Any:
        gain = "ln_" in name or ("norm" in name and name.endswith("weight"))
        if gain or (kind == "mbd" and name.endswith("counts")):
            made = self.ones(shape)
        else:
            made = self.normal(shape)
            made *= max(1, prod(shape[1:])) ** -0.5  # in place: the host's heap keeps freed memory
        if kind == "metavoice" and ".wte" in name:  # one channel distinguishes codes from all other ids
            made[:END_OF_AUDIO, 0], made[END_OF_AUDIO:, 0] = 1, -1
        if kind == "metavoice" and ".wpe" in name:
            made[:, 0] = 50
        wide = kind == "mbd" and (".norm" in name or ".processor." in name)
        dtype = "float32" if wide or models.network(kind).stays_float32(name) else self.dtype_name
        if self.side == "torch_ref":
            import torch

            return made.to(getattr(torch, dtype))
        import mlx.core as mx

        axes = models.network(kind).mlx_axes(self.configs[kind], name, made.ndim)
        value = mx.contiguous(made if axes is None else made.transpose(axes)).astype(getattr(mx, dtype))
        mx.eval(value)
        return value

    def normal(self, shape: tuple[int, ...]) -> Any:
        """Draw float32 numbers on the network's device: the host would take a minute."""
        if self.side == "torch_ref":
            import torch

            return torch.randn(shape, device=self.device)
        import mlx.core as mx

        return mx.random.normal(shape)

    def ones(self, shape: tuple[int, ...]) -> Any:
        if self.side == "torch_ref":
            import torch

            return torch.ones(shape, device=self.device)
        import mlx.core as mx

        return mx.ones(shape)

    def tensors(self, kind: str, prefix: str = "") -> dict[str, Any]:
        shapes = models.network(kind).parameter_shapes(self.configs[kind]).items()
        return {
            name.removeprefix(prefix): self.array(kind, name, shape)
            for name, shape in shapes
            if name.startswith(prefix)
        }

    def band(self, prefix: str) -> Any:
        """Tensors of a band of the diffusion; drawn once if that does not affect the peak."""
        if self.side == "mlx_port" or self.device.type == "cpu":
            return self.tensors("mbd", prefix)
        if prefix not in self.bands:
            made = self.tensors("mbd", prefix)
            self.bands[prefix] = {name: tensor.cpu() for name, tensor in made.items()}
        return {name: tensor.to(self.device) for name, tensor in self.bands[prefix].items()}

    def network(self, kind: str, cls: type[Any]) -> Any:
        made = cls
        if kind == "mbd":
            return made(self.configs[kind], lambda band: self.band(f"bands.{band}."))
        if self.side == "torch_ref":
            import torch

            with torch.device("meta"):
                network = made(self.configs[kind])
            network.load_state_dict(self.tensors(kind), strict=True, assign=True)
            return network.to(self.device).eval()
        network = made(self.configs[kind])
        shapes = models.network(kind).parameter_shapes(self.configs[kind]).items()
        for name, shape in shapes:
            network.load_weights([(name, self.array(kind, name, shape))], strict=False)
        if kind == "metavoice" and self.bits:
            from mlx import nn

            nn.quantize(
                network, 64, self.bits, class_predicate=lambda path, _: is_quantisable(f"{path}.weight")
            )
            import mlx.core as mx

            mx.eval(network.parameters())
        network.eval()
        return network


def parse(spec: str) -> tuple[int, int, str]:
    """Parse a job: frames, batch, decoder."""
    parts = spec.split("x")
    decoder = "mbd" if parts[-1] == "mbd" else "vocos"
    numbers = [int(part) for part in parts if part != "mbd"]
    return numbers[0], [*numbers, 1][1], decoder


def measure(size: str, side: str, dtype: str, device: str, bits: str, spec: str) -> dict[str, Any]:
    """Run one job. Returns its peak, the ids of its text, its real-time factor and seconds by stage."""
    frames, batch, decoder = parse(spec)
    assemble = import_module(f"{side}.metavoice.pipeline").assemble
    on = _torch_device(device) if side == "torch_ref" else []
    where = import_module(MEMORY[side]).backend_name(*on)
    meter: Any = Resident() if where.endswith("cpu") else Allocated(side, on)
    parts = RandomParts(side, configs(size, decoder), dtype, device, int(bits) or None)
    pipeline = assemble(parts)
    if side == "mlx_port":
        import mlx.core as mx

        mx.clear_cache()
    wave = np.random.default_rng(0).normal(0, 0.1, 30 * 24_000).astype(np.float32)
    meter.restart()
    given: dict[str, Any] = {"max_frames": frames, "seed": 1, "decoder": decoder, "piece_seconds": None}
    texts = [TEXT] * batch
    for _ in range(1 if where.endswith("cpu") else 2):
        made = pipeline.generate_batch(texts, prompts=Prompt.of(audio=wave), **given)[0]
    made_frames = made.codes.shape[1]  # a random network does not alternate strictly between the codebooks
    assert made_frames > 0.75 * frames, f"the text ended by itself after {made_frames} frames"
    speed = {"rtf": made.real_time_factor, "seconds": dict(made.stage_seconds)}
    return {"peak": meter.peak(), "ids": len(TEXT) + 1, **speed}


def _torch_device(device: str) -> list[Any]:
    import torch

    return [torch.device(device)]


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(measure(*sys.argv[2:])))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--size", choices=("middle", "full"), default="middle")
    parser.add_argument("--side", choices=("torch", "mlx"), default="torch")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16", "float16"))
    parser.add_argument("--bits", default="0", choices=("0", "8", "4"), help="0: not quantized")
    parser.add_argument("--jobs")
    args = parser.parse_args()
    side = {"torch": "torch_ref", "mlx": "mlx_port"}[args.side]
    where = f"{args.side}-{args.device}"
    version = metadata.version(args.side)
    print(f"{platform.platform()}, {os.cpu_count()} cores, {args.side} {version}")
    print(f"{args.size}, {args.dtype}, {args.bits} bits, {where}; MB")
    how = {"group_size": 64, "bits": int(args.bits), "mode": "affine"} if args.bits != "0" else None
    wrong = 0
    for spec in (args.jobs or JOBS[args.size]).split(","):
        command = [sys.executable, __file__, "--child", args.size, side, args.dtype, args.device, args.bits]
        done = subprocess.run([*command, spec], check=True, stdout=subprocess.PIPE, text=True)
        found = json.loads(done.stdout.splitlines()[-1])
        frames, batch, decoder = parse(spec)
        job = MetaVoiceJob(found["ids"], frames, batch, decoder=decoder)
        guess = estimate(configs(args.size, decoder), job, Machine(args.dtype, where, quantization=how))
        peak, error = found["peak"], abs(guess.total - found["peak"])
        off = error > 0.15 * peak and error > 64e6
        wrong += off
        terms = ", ".join(f"{term.name} {term.bytes / 1e6:.0f}" for term in guess.terms)
        percent = 100 * (guess.total / peak - 1)
        line = f"{peak / 1e6:.0f}; estimate {guess.total / 1e6:.0f} ({percent:+.1f} %): {terms}"
        print(f"{spec:<10} {line}{'  OFF' if off else ''}", flush=True)
        if args.device != "cpu":
            stages = ", ".join(f"{name} {took:.3f} s" for name, took in found["seconds"].items())
            print(f"{'':<10} RTF {found['rtf']:.3f}: {stages}", flush=True)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
