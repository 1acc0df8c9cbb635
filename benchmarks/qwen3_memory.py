"""Compare the peak memory of Qwen3-TTS's generations with the estimate; a process per job, random weights.

    python benchmarks/qwen3_memory.py [--size 0.6b|1.7b|tiny] [--side torch|mlx] [--device cpu|cuda]
        [--dtype bfloat16] [--jobs 40,40x60x25]

A job is FRAMES[xPOSITIONS OF THE PROMPT[xFRAMES OF A RECORDING]]. The peak is the growth of the resident set
since the imports on a CPU, where glibc gives freed arrays back at once: what it keeps otherwise changes from
run to run by up to 0.5 GB. On CUDA it is the peak of torch's or MLX's allocator. Exits with 1 if an estimate
is off by more than 6 % and more than 64 MB.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module, metadata
from typing import Any

import numpy as np
from peaks import Allocated, Resident

from tts_core.codecs.qwen3_codec import QWEN3_CODEC_12HZ
from tts_core.memory.machine import Machine
from tts_core.nn.noise import HostNoise
from tts_core.qwen3 import layout as layouts
from tts_core.qwen3 import speaker
from tts_core.qwen3.config import Qwen3Config, StackConfig, parameter_shapes, stays_float32
from tts_core.qwen3.layout import Recording
from tts_core.qwen3.memory import Qwen3Job, estimate
from tts_core.qwen3.rows import Joining
from tts_core.qwen3.sampling import Choice, Sampling
from tts_core.qwen3.spec import qwen3

CONFIGS = {"0.6b": qwen3("0b6", "base"), "1.7b": qwen3("1b7", "base")}
CONFIGS["tiny"] = replace(
    CONFIGS["0.6b"],
    talker=StackConfig(1024, 96, 2, 4, 2, 16, 1e6, 1e-6),
    predictor=StackConfig(64, 96, 1, 4, 2, 16, 1e6, 1e-6),
    text_hidden_size=64,
)


def parse(spec: str) -> Qwen3Job:
    frames, *rest = map(int, spec.split("x"))
    prompt, recording = (*rest, *(64, 0)[len(rest) :])
    return Qwen3Job(frames, prompt, recording)


def tensors(config: Qwen3Config, normal: Any, dtype: str) -> Iterator[tuple[str, Any]]:
    """Draw weights that keep activations at the size of trained ones, without larger arrays beside them.

    normal: shape, dtype, mean, deviation → tensor.
    """
    for name, shape in parameter_shapes(config).items():
        kind = "float32" if stays_float32(name) else dtype
        wide = 0.5 if "embedding" in name else int(np.prod(shape[1:])) ** -0.5
        yield name, normal(shape, kind, *((1, 0.1) if len(shape) == 1 else (0, wide)))


def networks(side: str, config: Qwen3Config, dtype: str, device: str) -> tuple[Any, Any]:
    """Build the model and its codec on a side."""
    package = {"torch": "torch_ref", "mlx": "mlx_port"}[side]
    model = import_module(f"{package}.qwen3.qwen3").Qwen3
    codec = import_module(f"{package}.codecs.qwen3_codec").Qwen3Codec
    if side == "mlx":
        import mlx.core as mx

        network = model(config)

        def drawn(shape: tuple[int, ...], kind: str, mean: float, deviation: float) -> Any:
            return mx.random.normal(shape, getattr(mx, kind), loc=mean, scale=deviation)

        for name, value in tensors(config, drawn, dtype):
            turned = value.transpose(0, 2, 1) if value.ndim == 3 else value
            mx.eval(turned)
            network.load_weights([(name, turned)], strict=False)
        made = codec(QWEN3_CODEC_12HZ)
        mx.eval(made.parameters())
        mx.clear_cache()
        return network, made
    import torch

    with torch.device("meta"):
        network = model(config)

    def normal(shape: tuple[int, ...], kind: str, mean: float, deviation: float) -> Any:
        return torch.empty(shape, dtype=getattr(torch, kind), device=device).normal_(mean, deviation)

    network.load_state_dict(dict(tensors(config, normal, dtype)), assign=True)
    with torch.device(device):
        made = codec(QWEN3_CODEC_12HZ)
    network, made = (each.to(device).eval().requires_grad_(False) for each in (network, made))
    return network, made


def measure(size: str, side: str, device: str, dtype: str, spec: str) -> int:
    """Run one job. Returns its peak in bytes."""
    package, job, config = {"torch": "torch_ref", "mlx": "mlx_port"}[side], parse(spec), CONFIGS[size]
    slots_of = import_module(f"{package}.qwen3.slots").Slots
    import_module(f"{package}.codecs.qwen3_codec")
    meter: Any = Resident() if device == "cpu" else Allocated(package, _device(side, device))
    network, codec = networks(side, config, dtype, device)
    array: Any = import_module("mlx.core").array if side == "mlx" else _tensor(device)
    meter.restart()
    frames = vector = recording = None
    random = np.random.default_rng(0)
    if job.recording:
        sound = random.normal(0, 0.1, 1920 * job.recording).astype(np.float32)
        frames = np.array(codec.encode(sound[None]).tolist(), np.int32)[0]
        assert config.speaker_encoder is not None
        mel = speaker.mel(sound, config.speaker_encoder)
        vector = np.array(network.speaker_encoder(array(mel[None]))[0].tolist(), np.float32)
        recording = Recording(tuple(range(10)), job.recording)
    before = len(layouts.build(config, [1] * 9, language=None, recording=recording, streamed=False).text)
    ids = random.integers(0, 9999, 9 + job.prompt - before).tolist()
    laid = layouts.build(
        config,
        ids,
        language=None,
        voice=layouts.SPEAKER if job.recording else layouts.NOTHING,
        recording=recording,
        streamed=False,
    )
    made, seed = [], 0
    with _inference(side):
        while len(made) < job.frames:  # until a seed does not end the speech
            slots = slots_of(network, texts=1, room=len(laid.text) + job.frames)
            slots.join(0, Joining(laid, Sampling(Choice(), Choice()), HostNoise(seed), vector, frames))
            made, seed = [], seed + 1
            while len(made) < job.frames and not (made and made[-1][0, 0] == config.codec_eos_id):
                made.append(slots.read(slots.launch(1))[0])
    codes, memory = np.stack(made, axis=2), None
    for start, stop in codec.policy.even_cuts(job.frames):
        samples, memory = codec.decode_piece(codes[:, :, start:stop], memory)
        samples.tolist()
    return meter.peak()


def _tensor(device: str) -> Any:
    import torch

    return lambda values: torch.from_numpy(values).to(device)


def _inference(side: str) -> Any:
    if side == "mlx":
        import contextlib

        return contextlib.nullcontext()
    import torch

    return torch.inference_mode()


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
    parser.add_argument("--size", choices=tuple(CONFIGS), default="tiny")
    parser.add_argument("--side", choices=("torch", "mlx"), default="torch")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--dtype", default="bfloat16", choices=("float32", "bfloat16", "float16"))
    parser.add_argument("--jobs", default="40,40x60x25")
    args = parser.parse_args()
    where = f"{args.side}-{args.device}"
    print(f"{platform.platform()}, {os.cpu_count()} cores, {args.side} {metadata.version(args.side)}")
    print(f"Qwen3-TTS {args.size}, {args.dtype}, {where}; MB")
    wrong, configs = 0, {"qwen3": CONFIGS[args.size], "qwen3_codec": QWEN3_CODEC_12HZ}
    for spec in args.jobs.split(","):
        command = [sys.executable, __file__, "--child", args.size, args.side, args.device, args.dtype, spec]
        kept = os.environ | {"MALLOC_MMAP_THRESHOLD_": str(2**20), "MALLOC_TRIM_THRESHOLD_": str(2**20)}
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=kept)
        peak = json.loads(done.stdout.splitlines()[-1])
        guess = estimate(configs, parse(spec), Machine(args.dtype, where))
        off = abs(guess.total - peak) > max(0.06 * peak, 64e6)
        wrong += off
        terms = ", ".join(f"{term.name} {term.bytes / 1e6:.0f}" for term in guess.terms)
        percent = 100 * (guess.total / peak - 1)
        line = f"{peak / 1e6:.0f}; estimate {guess.total / 1e6:.0f} ({percent:+.1f} %): {terms}"
        print(f"{spec:<10} {line}{'  OFF' if off else ''}", flush=True)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
