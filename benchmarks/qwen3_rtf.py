"""Measure the real-time factor of Qwen3-TTS on a CPU, with its codec; random weights of a published size.

    python benchmarks/qwen3_rtf.py [--size 0.6b|1.7b|tiny] [--sides torch,mlx] [--dtype float32]
        [--seconds 2] [--runs 3]

Each side in a process of its own, one after the other: a text of the voice of a vector, spoken as one whole,
once unheard and then `runs` times. Prints seconds of the clock and of the processor for a second of speech,
medians, and the peak of the resident set. On a busy machine the processor's time says more.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import time
from importlib import import_module
from typing import Any

import numpy as np

from benchmarks.lib.qwen3_networks import CONFIGS, networks
from benchmarks.lib.random_networks import PACKAGES
from benchmarks.lib.timing import arguments
from tts_core.models import MODELS
from tts_core.qwen3.net import Qwen3Net
from tts_core.qwen3.pipeline import Qwen3Pipeline


def measure(side: str, size: str, dtype: str, seconds: float, runs: int) -> str:
    """Speak on one side and describe how long it took."""
    config, package = CONFIGS[size], PACKAGES[side]
    network, codec = networks(side, config, dtype, "cpu")
    if side == "mlx":
        _fill(codec)
    own = MODELS["qwen3"].speed.documents({"qwen3": config})
    slots = import_module(f"{package}.qwen3.decoder")
    host = import_module(f"{package}.host").Host(network.talker.model.codec_embedding)
    pipeline = Qwen3Pipeline(
        Qwen3Net(
            {"qwen3": network, "qwen3_codec": codec},
            own,
            host,
            make_slots=slots.make_slots,
            fault=slots.fault,
        )
    )
    vector = np.random.default_rng(0).normal(0, 1, config.talker.hidden_size).astype(np.float32)
    times = []
    for run in range(runs + 1):
        start = time.perf_counter(), time.process_time()
        made = pipeline.generate("The quick brown fox.", prompt=vector, seed=run, max_seconds=seconds)
        wall, busy = time.perf_counter() - start[0], time.process_time() - start[1]
        times.append((wall / made.audio_seconds, busy / made.audio_seconds))
    wall, busy = (statistics.median(item) for item in zip(*times[1:], strict=True))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return (
        f"{side}, {size}, {dtype}: RTF {wall:.2f}, processor {busy:.2f} s a second, "
        f"{made.audio_seconds:.2f} s of speech, {runs} runs, {os.cpu_count()} cores, peak {peak:.1f} GB"
    )


def _fill(codec: Any) -> None:
    """Draw the codec's weights: MLX begins with codebooks of zeros, whose sound is silence."""
    import mlx.core as mx
    from mlx.utils import tree_map

    codec.update(
        tree_map(lambda parameter: mx.random.normal(parameter.shape, scale=0.02), codec.parameters())
    )
    mx.eval(codec.parameters())


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--size", choices=CONFIGS, default="0.6b")
    parser.add_argument("--sides", default="torch,mlx")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    sides = args.sides.split(",")
    if len(sides) == 1:
        print(measure(sides[0], args.size, args.dtype, args.seconds, args.runs), flush=True)
        return
    for side in sides:
        subprocess.run([sys.executable, *sys.argv, "--sides", side], check=True)


if __name__ == "__main__":
    main()
