"""Compare DAC's decode by windows with transformers' DacModel, in the same precision and run: time, memory.

    python benchmarks/dac_decode.py [--seconds 10,30,120] [--precision float32,tf32,bfloat16] [--repeats 5]
        [--texts 8] [--window 768]

Random weights at the published size. float32 is without TF32; tf32 lets cuDNN use it; bfloat16 runs under
torch.autocast. `GB` is the allocator's peak over weights and codes, waveform included. `SNR` is torch_ref's
against float64 on the first second. The last line decodes several texts in one call and one by one. Needs
CUDA.
"""

from __future__ import annotations

import argparse
import copy
import math
import statistics
from collections.abc import Callable
from importlib import metadata
from typing import Any, cast

import torch
from dac_memory import random_codec
from memory_jobs import SIZES
from peaks import peak_of
from torch import Tensor

from torch_ref.codecs.dac import Dac
from torch_ref.cuda.precision import Precision, computing
from tts_core.codecs.policy import CodecPolicy, own

FIRST = 86  # frames whose output is compared with float64


def milliseconds(call: Callable[[], object], repeats: int) -> float:
    call()
    times = []
    for _ in range(repeats):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        stop.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(stop))
    return statistics.median(times)


def peer() -> Callable[[Tensor], Any]:
    import transformers

    with torch.device("cuda"):
        model = transformers.DacModel(transformers.DacConfig()).eval()
    return lambda codes: model.decode(audio_codes=codes.long())[0]


def snr(codec: Dac, exact: Tensor, codes: Tensor, name: Precision) -> float:
    codec.precision = name
    error = codec.decode(codes).double() - exact
    return 10 * math.log10(float(exact.square().sum() / error.square().sum()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", default="10,30,120")
    parser.add_argument("--precision", default="float32,tf32,bfloat16")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--texts", type=int, default=8)
    parser.add_argument("--window", type=int, default=own("torch-cuda").max_frames, help="frames")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("dac_decode: needs an NVIDIA GPU")
    codec = random_codec(SIZES["full"][1], "cuda")
    codec.policy = CodecPolicy(args.window, first_frames=args.window)  # not streamed
    sides = codec.decode, peer()
    config = codec.config
    versions = f"torch {torch.__version__}, transformers {metadata.version('transformers')}"
    print(f"{torch.cuda.get_device_name()}, {versions}")

    def random(frames: int, texts: int = 1) -> Tensor:
        return torch.randint(0, config.codebook_size, (texts, config.n_codebooks, frames), device="cuda")

    first = random(FIRST)
    exact = copy.deepcopy(codec).double().decode(first)
    print("precision seconds torch_ref ms transformers ms     GB     GB    SNR")
    for name in cast(list[Precision], args.precision.split(",")):
        codec.precision = name
        for seconds in map(int, args.seconds.split(",")):
            codes = random(round(seconds * config.frame_rate))
            with torch.inference_mode(), computing(name, codes.device):
                ours, other = (milliseconds(lambda f=f, c=codes: f(c), args.repeats) for f in sides)
                held = [peak_of(lambda f=f, c=codes: f(c), "cuda") / 1e9 for f in sides]
            line = f"{name:<9} {seconds:>7} {ours:>12.1f} {other:>15.1f} {held[0]:>6.2f} {held[1]:>6.2f}"
            print(f"{line} {snr(codec, exact, first, name):>6.1f}", flush=True)
    codes = random(round(10 * config.frame_rate), args.texts)
    codec.precision = "float32"
    with torch.inference_mode():
        together = milliseconds(lambda: codec.decode(codes), args.repeats)
        alone = milliseconds(lambda: [codec.decode(one[None]) for one in codes], args.repeats)
    print(f"{args.texts} texts of 10 s: {together:.1f} ms in one call, {alone:.1f} ms one by one")


if __name__ == "__main__":
    main()
