"""Compare DAC's decode by windows with the whole decode: peak memory of activations, time, and output.

    python benchmarks/dac_memory.py [--device cpu|cuda] [--seconds 120] [--window 256] [--repeats 3]
    [--size full|voice] [--bound 0.7]

A random DAC of the published size, in float32 (TF32 off), decodes random codes both ways in one run. Memory
is the allocator's peak on CUDA, without weights and codes but with the waveform, and the growth of the
resident set on a CPU. --seconds is 120 on CUDA and 5 on a CPU by default.
Exits with 1 if the windows take more than `--bound` GB, or, for 120 s and more, over 1.15 times the whole
decode's time, or if the outputs differ by more than 16 times float32's own error, which is measured on the
first frames against float64.
"""

from __future__ import annotations

import argparse
import copy
import math
import statistics
import sys

import torch
from memory_jobs import SIZES
from peaks import described, peak_of, seconds_of
from torch import Tensor

from torch_ref.codecs.dac import Dac
from torch_ref.device import backend_name, free_bytes
from tts_core.codecs import dac
from tts_core.codecs.dac import DacConfig
from tts_core.codecs.dac_memory import codec_policy
from tts_core.codecs.policy import CodecPolicy, own
from tts_core.memory.machine import Machine

SLOWER, LONG = 1.15, 120  # limit over the whole decode's time, from this many seconds of speech on


def scale(name: str, shape: tuple[int, ...]) -> float:
    """Standard deviation of a random weight that keeps every layer's values near 1 and clips few samples."""
    if len(shape) == 1:
        return 0.05
    fed = shape[0] * 2 if ".conv_t1." in name else math.prod(shape[1:])
    return fed**-0.5 * (0.3 if ".conv2." in name else 1.0)


def random_codec(config: DacConfig, device: str) -> Dac:
    generator = torch.Generator().manual_seed(0)
    with torch.device("meta"):
        codec = Dac(config)
    state = {
        name: torch.ones(shape)
        if name.endswith(".alpha")
        else torch.randn(shape, generator=generator) * scale(name, shape)
        for name, shape in dac.parameter_shapes(config).items()
    }
    codec.load_state_dict(state, assign=True)
    codec.policy = own(f"torch-{device}")
    return codec.to(device).eval()


def rounding(codec: Dac, codes: Tensor) -> float:
    """Largest error of float32 in the first window, against float64."""
    codes = codes[:, :, : codec.policy.max_frames]
    exact = copy.deepcopy(codec).double().decode(codes)
    return (codec.decode(codes) - exact).abs().max().item()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cpu", "cuda"))
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--window", type=int, help="frames; default: the size that `load` would take")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--size", choices=tuple(SIZES), default="full")
    parser.add_argument("--bound", type=float, default=0.7, help="GB")
    args = parser.parse_args()
    device = args.device or ("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    config = SIZES[args.size][1]
    length = args.seconds or (120.0 if device == "cuda" else 5.0)
    frames = math.ceil(length * config.frame_rate)
    print(described(device))
    codec = random_codec(config, device)
    where = next(codec.parameters()).device
    machine = Machine("float32", backend_name(where), free_bytes(where))
    policy = CodecPolicy(args.window) if args.window else codec_policy(config, machine)
    codec.policy = policy
    print(f"{args.size} DAC, float32: {length:g} s, {frames} frames, windows of {policy.max_frames}")
    generator = torch.Generator().manual_seed(1)
    shape = 1, config.n_codebooks, frames
    codes = torch.randint(config.codebook_size, shape, generator=generator, dtype=torch.int32).to(device)
    bound = 16 * rounding(codec, codes) + 4 * torch.finfo(torch.float32).eps
    forms = {"windows": lambda: codec.decode(codes), "whole": lambda: codec.decode_frames(codes, 0, frames)}
    out, peaks, times = {}, dict[str, int](), dict[str, list[float]]()
    for name, decode in forms.items():
        out[name] = decode().cpu()  # also warms up
        peaks[name] = peak_of(decode, device)
    for _ in range(args.repeats):  # alternating, so that both see the same load
        for name, decode in forms.items():
            times.setdefault(name, []).append(seconds_of(decode, device))
    medians = {name: statistics.median(one) for name, one in times.items()}
    for name in forms:
        print(
            f"{name:<8} peak {peaks[name] / 1e9:7.3f} GB, {medians[name]:8.3f} s "
            f"({min(times[name]):.3f} to {max(times[name]):.3f}, {args.repeats} runs)"
        )
    ratio = medians["windows"] / medians["whole"]
    difference = (out["windows"] - out["whole"]).abs().max().item()
    print(f"time {ratio:.3f} of the whole decode's; largest difference {difference:.2e}, bound {bound:.2e}")
    faults = {
        f"the windows take more than {args.bound} GB": peaks["windows"] > args.bound * 1e9,
        f"the windows take more than {SLOWER} times as long": ratio > SLOWER and length >= LONG,
        "the outputs differ": not difference <= bound,
    }
    for fault, true in faults.items():
        if true:
            print(fault)
    sys.exit(1 if any(faults.values()) else 0)


if __name__ == "__main__":
    main()
