"""Measure microseconds of each kernel for few rows, and of reading its bytes, at a published decoder's sizes.

    python benchmarks/row_kernels.py [--model mars5|metavoice] [--rows 2] [--dtype bfloat16]
    [--position 500] [--search]

Each kernel runs over random weights of all layers in turn, captured as one graph, so that no weights are in
the cache from the previous call. `--search` tries other sizes of tiles, warps, keys and parts. Needs CUDA and
Triton.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from itertools import product
from typing import Any

import torch
from mars5_ar_step import copy_rate

from torch_ref.cuda import attention
from torch_ref.cuda import rows as row_kernels
from torch_ref.layers.rope import RotaryPositions
from tts_core.mars5.spec import MARS5_AR
from tts_core.metavoice.spec import METAVOICE_FIRST_STAGE

Run = Callable[[], object]
CONFIGS: dict[str, Any] = {"mars5": MARS5_AR, "metavoice": METAVOICE_FIRST_STAGE}
GAINS = {"mars5": torch.float32}  # dtype of a norm's weight, if not the network's


def graph_time(run: Run) -> float:
    """Median microseconds of a captured call."""
    for _ in range(2):
        run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    times = []
    for _ in range(40):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        stop.record()
        torch.cuda.synchronize()
        times.append(1000 * start.elapsed_time(stop))
    return statistics.median(times[5:])


class Bench:
    """Weights and caches of every layer, and random inputs."""

    def __init__(self, model: str, rows: int, dtype: torch.dtype, position: int):
        self.config = config = CONFIGS[model]
        torch.manual_seed(0)
        width, inner, heads = config.hidden_size, config.intermediate_size, config.num_attention_heads
        head, capacity = width // heads, position + 100

        def normal(*shape: int) -> torch.Tensor:
            return (torch.randn(*shape, device="cuda") * shape[-1] ** -0.5).to(dtype)

        self.x, self.inner = normal(rows, width), normal(rows, inner)
        self.projected = normal(rows, 3 * width)
        self.attended, self.scale = normal(rows, width), head**-0.5
        self.sizes = rows, heads, heads, head
        self.work = attention.workspace(*self.sizes, self.x.device)
        self.gain = torch.ones(width, device="cuda", dtype=GAINS.get(model, dtype))
        self.position = torch.tensor([position], device="cuda")
        rotary = RotaryPositions(capacity, head, 10000.0).to("cuda")
        self.tables = rotary(0, capacity) if model == "mars5" else None
        layers = range(config.num_hidden_layers)
        self.qkv = [normal(3, width, width) for _ in layers]
        self.out = [normal(width, width) for _ in layers]
        self.up = [normal(2, inner, width) for _ in layers]
        self.down = [normal(width, inner) for _ in layers]
        self.kept = [normal(2, rows, heads, capacity, head) for _ in layers]

    def attend(self, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Attention of the rows to one layer's ring."""
        return attention.attend(
            self.projected,
            self.position,
            keys,
            values,
            self.work,
            scale=self.scale,
            rotation=self.tables,
            pairing="neighbors",
        )

    def kernels(self) -> dict[str, tuple[Run, float]]:
        """Calls in all layers, and bytes of one call, by kernel."""
        x, gain = self.x, self.gain
        seen = self.kept[0].nbytes * int(self.position) / self.kept[0].shape[3]

        def each(call: Callable[[torch.Tensor], object], weights: list[torch.Tensor]) -> Run:
            return lambda: [call(weight) for weight in weights]

        return {
            "norm, q, k, v": (
                each(lambda w: row_kernels.normed_linear(x, gain, 1e-5, w.flatten(0, 1)), self.qkv),
                self.qkv[0].nbytes,
            ),
            "attention": (
                each(
                    lambda c: self.attend(c[0], c[1]),
                    self.kept,
                ),
                seen,
            ),
            "output, residual": (
                each(lambda w: row_kernels.add_linear(x, self.attended, w), self.out),
                self.out[0].nbytes,
            ),
            "norm, gate": (
                each(lambda w: row_kernels.gated_linear(x, gain, 1e-5, *w), self.up),
                self.up[0].nbytes,
            ),
            "down, residual": (
                each(lambda w: row_kernels.add_linear(x, self.inner, w), self.down),
                self.down[0].nbytes,
            ),
        }


def times(bench: Bench, rate: float) -> None:
    layers = bench.config.num_hidden_layers
    for name, (run, size) in bench.kernels().items():
        each = graph_time(run) / layers
        print(f"{name:<28} {each:>8.2f} us, bytes {1e6 * size / rate:>6.2f} us", flush=True)


def search(bench: Bench) -> None:
    layers = bench.config.num_hidden_layers
    for tile, warps, programs in product((16384, 32768, 65536), (2, 4, 8), (2, 4)):
        row_kernels.TILE_BYTES, row_kernels.WARPS, row_kernels.PROGRAMS = tile, warps, programs
        found = {
            name: graph_time(run) / layers for name, (run, _) in bench.kernels().items() if "att" not in name
        }
        line = ", ".join(f"{name} {took:.2f}" for name, took in found.items())
        print(f"tile {tile}, warps {warps}, programs {programs}: {line}", flush=True)
    for block, programs in product((2048, 4096, 8192), (1, 2, 4)):
        attention.BLOCK, attention.PROGRAMS = block, programs
        bench.work = attention.workspace(*bench.sizes, bench.x.device)
        run, _ = bench.kernels()["attention"]
        print(f"block {block}, programs {programs}: attention {graph_time(run) / layers:.2f}", flush=True)


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", default="mars5", choices=CONFIGS)
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float16", "float32"))
    parser.add_argument("--position", type=int, default=500)
    parser.add_argument("--search", action="store_true")
    args = parser.parse_args()
    if not torch.cuda.is_available() or attention.triton is None:
        print("row_kernels: nothing measured; these kernels need an NVIDIA GPU and Triton")
        return
    rate = copy_rate()
    bench = Bench(args.model, args.rows, getattr(torch, args.dtype), args.position)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, Triton {attention.triton.__version__}")
    where = f"position {args.position}, copies at {rate / 1e12:.2f} TB/s"
    print(f"{args.model}, {args.rows} rows, {args.dtype}, {where}")
    times(bench, rate)
    if args.search:
        search(bench)


if __name__ == "__main__":
    main()
