"""Measure how a step of torch_ref's Dia grows with texts, text length and position; plot it.

    python benchmarks/dia_growth.py [--dtype bfloat16] [--plot growth.png]

Dia-1.6B's shape with random weights, guidance on, one captured step as generation runs it. One of the three
varies, the others are 1 text, 176 bytes and row 600; a row is 11.6 ms of speech. Needs CUDA, and matplotlib
for --plot.
"""

from __future__ import annotations

import argparse
import statistics
from importlib import import_module
from typing import Any

import torch
from dia_step import full_network

from torch_ref.dia.dia import Dia
from torch_ref.dia.fused import FusedDecoder
from torch_ref.dia.slots import Slots

SWEEPS = {
    "texts": (1, 2, 4, 8, 16, 32, 64),
    "bytes of text": (50, 100, 250, 500, 1000),
    "row": (100, 400, 860, 1720, 3000),
}
DEFAULTS = {"texts": 1, "bytes of text": 176, "row": 600}
STEPS = 40


def milliseconds(network: Dia, texts: int, text_bytes: int, row: int) -> float:
    """Median milliseconds of a step whose rows are near `row`."""
    decoder = FusedDecoder(network, network.encode_nothing())
    slots = Slots(decoder, texts=texts, rows=min(row + 4 * STEPS, 3072), text_rows=text_bytes)
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
    found: dict[str, list[float]] = {}
    with torch.inference_mode():
        for name, values in SWEEPS.items():
            found[name] = [milliseconds(network, *(DEFAULTS | {name: one}).values()) for one in values]
            line = ", ".join(f"{one}: {took:.2f}" for one, took in zip(values, found[name], strict=True))
            print(f"ms a step by {name}: {line}", flush=True)
    if args.plot:
        draw(found, args.plot)


def draw(found: dict[str, list[float]], path: str) -> None:
    pyplot: Any = import_module("matplotlib.pyplot")
    figure, axes = pyplot.subplots(1, len(found), figsize=(12, 3.5), sharey=False)
    for axis, (name, times) in zip(axes, found.items(), strict=True):
        axis.plot(SWEEPS[name], times, marker="o")
        axis.set(xlabel=name, ylabel="ms a step", ylim=(0, None))
    figure.tight_layout()
    figure.savefig(path, dpi=80)


if __name__ == "__main__":
    main()
