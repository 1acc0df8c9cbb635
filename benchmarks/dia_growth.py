"""Measure how a step of torch_ref's Dia grows with texts, text length and position; plot it.

    python benchmarks/dia_growth.py [--dtype bfloat16] [--plot growth.png]

Dia-1.6B's shape with random weights, guidance on, one captured step as generation runs it. Of texts, bytes
and row one varies; the others are 1 text, 176 bytes and row 600; a row is 11.6 ms of speech. Then dialogues
of up to three minutes are spoken in pieces, each behind the one before it: the time of a frame, with the
reading of all texts and a small codec. Needs CUDA, and matplotlib for --plot.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import time
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import torch
from dia_step import TEXT, TINY_CODEC, full_network

from torch_ref.codecs.dac import Dac
from torch_ref.cuda.dia.fused import FusedDecoder
from torch_ref.cuda.dia.slots import DiaGraphSlots
from torch_ref.dia.dia import Dia
from torch_ref.dia.pipeline import compose

SWEEPS = {
    "texts": (1, 2, 4, 8, 16, 32, 64),
    "bytes of text": (50, 100, 250, 500, 1000),
    "row": (100, 400, 860, 1720, 3000),
}
DEFAULTS = {"texts": 1, "bytes of text": 176, "row": 600}
STEPS = 40
DIALOGUES = (TEXT[:51], *(" ".join([TEXT] * repeats) for repeats in (1, 2, 4, 7)))  # 7 s to 3 min
FRAMES = 44100 / 512  # a second


def milliseconds(network: Dia, texts: int, text_bytes: int, row: int) -> float:
    """Median milliseconds of a step whose rows are near `row`."""
    decoder = FusedDecoder(network, network.encode_nothing())
    slots = DiaGraphSlots(decoder, texts=texts, rows=min(row + 4 * STEPS, 3072), text_rows=text_bytes)
    memory = slots.memory
    for layers in (memory.keys, memory.values, memory.source_keys, memory.source_values):
        for layer in layers:
            layer.normal_()
    memory.lengths.fill_(text_bytes)
    slots.rows.filled.fill_(row)
    slots.rows.limit.fill_(10**6)
    times = []
    for _ in range(4):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        slots.launch(STEPS - 10)
        stop.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(stop) / (STEPS - 10))
    return statistics.median(times[1:])


def spoken(network: Dia) -> tuple[list[float], list[float]]:
    """Seconds of speech of longer and longer dialogues, and milliseconds for a frame of each."""
    logging.disable(logging.WARNING)  # random weights end no piece before its limit
    pipeline = compose(network, Dac(TINY_CODEC).to(network.logits_dense.weight.device))
    pipeline.generate(TEXT, seed=0)
    lengths, frames = [], []
    for text in DIALOGUES:
        started = time.perf_counter()
        result = pipeline.generate(text, seed=0)
        took = time.perf_counter() - started
        lengths.append(result.audio_seconds)
        frames.append(1000 * took / (result.audio_seconds * FRAMES))
    return lengths, frames


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float16", "float32"))
    parser.add_argument("--plot", metavar="FILE")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        print("dia_growth: nothing measured; the captured step needs an NVIDIA GPU")
        return
    network = full_network(args.dtype)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {args.dtype}")
    found: dict[str, tuple[Sequence[float], list[float]]] = {}
    with torch.inference_mode():
        for name, values in SWEEPS.items():
            found[name] = (
                values,
                [milliseconds(network, *(DEFAULTS | {name: one}).values()) for one in values],
            )
        found["seconds of speech"] = spoken(network)
    for name, (values, times) in found.items():
        line = ", ".join(f"{one:.0f}: {took:.2f}" for one, took in zip(values, times, strict=True))
        print(f"{unit(name)} by {name}: {line}", flush=True)
    if args.plot:
        draw(found, args.plot)


def unit(name: str) -> str:
    return "ms a step" if name in SWEEPS else "ms a frame"


def draw(found: dict[str, tuple[Sequence[float], list[float]]], path: str) -> None:
    pyplot: Any = import_module("matplotlib.pyplot")
    figure, axes = pyplot.subplots(1, len(found), figsize=(15, 3.5), sharey=False)
    for axis, (name, (values, times)) in zip(axes, found.items(), strict=True):
        axis.plot(values, times, marker="o")
        axis.set(xlabel=name, ylabel=unit(name), ylim=(0, None))
    figure.tight_layout()
    figure.savefig(path, dpi=80)


if __name__ == "__main__":
    main()
