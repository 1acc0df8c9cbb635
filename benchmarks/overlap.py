"""Compare Dia's `generate_batch` with the serial floor: its decoder, then its codec, each by itself.

    python benchmarks/overlap.py [--sizes 64,1,16] [--precision tf32,float32] [--seconds 10] [--runs 2]
        [--size full|voice] [--windows 0]

Dia-1.6B and DAC at 44.1 kHz with random weights, in bfloat16 on one NVIDIA GPU; `voice` is the embedded
voice, in float32, also on a CPU. Every text is --seconds long. For each number of texts:

    decoder    the same requests without sound, seconds
    codec      the windows of `generate_batch` for these codes, as large calls as the memory plan allows
    floor      seconds of speech a second of both, one after the other
    batch      `generate_batch`, seconds of speech a second, and by the floor
    account    where its time went (benchmarks/accounting.py), in seconds
    equal      whether its codes are those of the decoder alone, and its largest difference of a sample

--windows: most frames of the codec's windows, to compare several; 0 for the default.
Every figure is the least of --runs runs after a short one. Growth of throughput: --sizes 1,8,16,32,64,128.
"""

from __future__ import annotations

import argparse
import itertools
import json
import platform
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.accounting import Account
from tts_core.codecs import dac
from tts_core.codecs.dac import DAC_44KHZ
from tts_core.codecs.dac_calls import Passage
from tts_core.codecs.policy import own
from tts_core.dia.options import DiaOptions
from tts_core.dia.request import requests
from tts_core.dia.shapes import is_norm, parameter_shapes
from tts_core.dia.spec import DIA_0626
from tts_core.pipeline import Callbacks
from tts_core.voice.embedded import CODEC, DIA

TEXT = (
    "[S1] Dia is an open weights text to dialogue model. [S2] You get full control over scripts and voices. "
    "[S1] Wow. Amazing. (laughs) [S2] Try it now on Git hub or Hugging Face."
)
WARM = 40  # frames


def full(device: str) -> Any:
    """Dia-1.6B in bfloat16 and DAC; EOS is never the largest, so every text has full length."""
    from torch_ref.codecs.dac import Dac
    from torch_ref.dia.dia import Dia
    from torch_ref.dia.pipeline import compose

    torch.manual_seed(0)
    with torch.device("meta"):
        network, codec = Dia(DIA_0626), Dac(DAC_44KHZ)
    state = {}
    for name, shape in parameter_shapes(DIA_0626).items():
        x = torch.randn(shape, device=device)
        if is_norm(name):
            state[name] = x * 0.1 + 1
        else:
            state[name] = (x * (0.5 if "embed" in name else shape[-1] ** -0.5)).bfloat16()
    state["logits_dense.weight"][DIA_0626.eos_token_id] = 0
    network.load_state_dict(state, assign=True)
    state = {}
    for name, shape in dac.parameter_shapes(DAC_44KHZ).items():
        x = torch.randn(shape, device=device)
        fed = shape[0] * 2 if ".conv_t1." in name else int(np.prod(shape[1:]))
        scale = 0.05 if len(shape) == 1 else fed**-0.5 * (0.3 if ".conv2." in name else 1.0)
        state[name] = torch.ones_like(x) if name.endswith(".alpha") else x * scale
    codec.load_state_dict(state, assign=True)
    pipeline = compose(network.to(device).eval(), codec.to(device).eval())
    codec.policy = own(pipeline.engine.host.backend)
    return pipeline


def voice(device: str) -> Any:
    """The embedded voice."""
    from torch_ref.dia.pipeline import DiaPipeline

    return DiaPipeline.load(DIA, codec=CODEC, dtype="float32", device=device)


def least(call: Callable[[], Any], runs: int) -> tuple[float, Any]:
    """Return the least seconds of some runs, and the last result."""
    seconds, made = [], None
    for _ in range(runs):
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        begun = time.perf_counter()
        made = call()
        seconds.append(time.perf_counter() - begun)
    return min(seconds), made


def codes_alone(pipeline: Any, texts: int, frames: int) -> list[np.ndarray]:
    """Run the requests of `generate_batch` without the codec."""
    options = DiaOptions(seed=list(range(texts)), max_frames=frames)
    config, codec = pipeline.config, pipeline.codec_config
    asked = requests(config, codec, [TEXT] * texts, options, None, pipeline.rules)
    return [one.codes for one in pipeline._together(asked, Callbacks(None, None), sound=False)]


def passages(pipeline: Any, codes: Sequence[np.ndarray]) -> list[Passage]:
    """Cut codes into the windows of `generate_batch`."""
    policy, found = pipeline.engine.policy.unheard(), []
    for one in codes:
        start = 0
        while start < one.shape[1]:
            stop = min(policy.served_stop(start), one.shape[1])
            found.append(Passage(one, start, stop))
            start = stop
    return found


def difference(pipeline: Any, codes: Sequence[np.ndarray], spoken: Sequence[Any]) -> dict[str, Any]:
    """Compare a batch with what the decoder and the codec give by themselves."""
    sounds: list[list[np.ndarray]] = [[] for _ in codes]
    cut = passages(pipeline, codes)
    place = -1
    for passage, sound in zip(cut, pipeline.engine.decode_windows(cut), strict=True):
        place += passage.start == 0
        sounds[place].append(sound)
    whole = [np.concatenate(each) for each in sounds]
    same = all(np.array_equal(one, each.codes) for one, each in zip(codes, spoken, strict=True))
    if any(len(one) != len(each.audio) for one, each in zip(whole, spoken, strict=True)):
        return {"codes": same, "samples": "other lengths"}
    largest = max(float(np.abs(one - each.audio).max()) for one, each in zip(whole, spoken, strict=True))
    return {"codes": same, "samples": largest, "loudest": max(float(np.abs(one).max()) for one in whole)}


def measure(pipeline: Any, account: Account, texts: int, frames: int, args: argparse.Namespace) -> None:
    """Measure one number of texts; every figure is printed as soon as it is known."""

    def note(name: str, found: Any) -> None:
        print(f"{texts:>4} texts  {name:<18}", json.dumps(found), flush=True)

    rate, hop = pipeline.sample_rate, pipeline.codec_config.hop_length
    how: dict[str, Any] = {"seed": list(range(texts)), "max_frames": frames}
    every = [TEXT] * texts
    codes_alone(pipeline, texts, WARM)
    account.restart()
    decoder, codes = least(lambda: codes_alone(pipeline, texts, frames), args.runs)
    speech = sum(one.shape[1] for one in codes) * hop / rate
    note("decoder", {"seconds": round(decoder, 3), "speech a second": round(speech / decoder, 1)})
    cut = passages(pipeline, codes)
    for precision in args.precision.split(","):
        pipeline.engine.codec.precision = precision
        pipeline.engine.decode_windows(cut[:8])
        account.restart()
        codec, _ = least(lambda: pipeline.engine.decode_windows(cut), args.runs)
        note(f"codec {precision}", {"seconds": round(codec, 3), "speech a second": round(speech / codec, 1)})
        floor = speech / (decoder + codec)
        note(f"floor {precision}", {"speech a second": round(floor, 1)})
        pipeline.generate_batch(every, seed=how["seed"], max_frames=WARM)
        best, spoken = float("inf"), []
        times: dict[str, float] = {}
        for _ in range(args.runs):
            account.restart()
            seconds, spoken = least(lambda: pipeline.generate_batch(every, **how), 1)
            if seconds < best:
                best, times = seconds, account.found()
        found = {
            "seconds": round(best, 3),
            "speech a second": round(speech / best, 1),
            "by the floor": round(speech / best / floor, 3),
        }
        note(f"batch {precision}", found)
        note(f"account {precision}", times)
        note(f"equal {precision}", difference(pipeline, codes, spoken))
    if torch.cuda.is_available():
        note("peak", {"GB": round(torch.cuda.max_memory_allocated() / 1e9, 2)})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", default="64,1,16")
    parser.add_argument("--precision", default="tf32,float32")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--windows", default="0")
    parser.add_argument("--size", choices=("full", "voice"), default="full")
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    name = torch.cuda.get_device_name() if device == "cuda" else platform.machine()
    print(f"torch {torch.__version__}, {name}", flush=True)
    begun = time.perf_counter()
    pipeline = full(device) if args.size == "full" else voice(device)
    account = Account(pipeline)
    print(f"weights {time.perf_counter() - begun:.1f} s, {pipeline.engine.policy}", flush=True)
    frames = round(args.seconds * pipeline.codec_config.frame_rate)
    policy = pipeline.engine.policy
    for texts, window in itertools.product(args.sizes.split(","), map(int, args.windows.split(","))):
        if window:
            pipeline.engine.codec.policy = replace(policy, max_frames=window)
            print(pipeline.engine.policy.unheard(), flush=True)
        measure(pipeline, account, int(texts), frames, args)
    print(f"all {time.perf_counter() - begun:.1f} s", flush=True)


if __name__ == "__main__":
    main()
