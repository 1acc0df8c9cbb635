"""Microseconds of each kernel for one row, at CodecLM's published sizes, beside the time its bytes take.

    python benchmarks/row_kernels.py [--dtype bfloat16] [--position 500] [--search]

Each kernel runs on the weights of all blocks in turn, captured as one graph, so that none is in the cache
from the time before. Last stand the whole row and the sampling of one id. `--search` tries other numbers of
rows per program, warps, keys and parts. Needs CUDA and Triton.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from itertools import product
from typing import Any

import torch
from mars5_ar_step import Job, copy_rate, tensors

from torch_ref.layers import row_kernels
from torch_ref.layers.cache import RingCache
from torch_ref.mars5 import row, step
from torch_ref.mars5.codec_lm import Block, CodecLM
from tts_core.mars5 import is_norm
from tts_core.mars5_sampling import Mars5Settings
from tts_core.published_sizes import MARS5_AR, MARS5_TEXT_IDS

Run = Callable[[], object]


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
    """A full-size network with random weights after a prompt of `position` rows."""

    def __init__(self, dtype: torch.dtype, position: int):
        config = MARS5_AR
        torch.manual_seed(0)
        state = {
            name: value.to(torch.float32 if is_norm(name) else dtype)
            for name, value in tensors(config, lambda shape: torch.randn(shape, device="cuda"))
        }
        with torch.device("meta"):
            self.network = CodecLM(config)
        self.network.load_state_dict(state, assign=True)
        self.blocks: list[Any] = list(self.network.ar.layers)
        width, capacity = config.hidden_size, position + 100
        self.x = torch.randn(width, device="cuda", dtype=dtype)
        self.inner = torch.randn(config.intermediate_size, device="cuda", dtype=dtype)
        self.projected = torch.randn(3, width, device="cuda", dtype=dtype)
        self.rotary = self.network.positions(capacity)
        self.position = torch.tensor([position], device="cuda")
        shape = 1, config.num_attention_heads, position, config.head_dim
        self.cache = [RingCache(config.sliding_window, capacity) for _ in self.blocks]
        for rows in self.cache:
            rows.extend(*(torch.randn(shape, device="cuda", dtype=dtype) for _ in "kv"))

    def each(self, call: Callable[[Block, RingCache], object]) -> Run:
        def run() -> None:
            for block, rows in zip(self.blocks, self.cache, strict=True):
                call(block, rows)

        return run

    def kernels(self) -> dict[str, tuple[Run, float]]:
        """Name → its calls in all blocks, and the bytes of one of them."""
        x, config, item = self.x, MARS5_AR, self.x.element_size()
        square = config.hidden_size**2 * item
        inner = config.hidden_size * config.intermediate_size * item
        kept = 2 * config.hidden_size * int(self.position) * item
        tables = self.rotary(0, row.MOST_POSITIONS)

        def project(block: Block, _: RingCache) -> object:
            at = block.attention
            weights = at.wq.weight, at.wk.weight, at.wv.weight
            return row_kernels.normed_linear(x, block.attention_norm.weight, 1e-5, weights)

        def attend(_: Block, rows: RingCache) -> object:
            return row_kernels.attend(self.projected, tables, self.position, rows)

        def feed(block: Block, _: RingCache) -> object:
            weights = block.feed_forward.w1.weight, block.feed_forward.w3.weight
            return row_kernels.gated_linear(x, block.ffn_norm.weight, 1e-5, *weights)

        def out(block: Block, _: RingCache) -> object:
            return row_kernels.add_linear(x, self.projected[0], block.attention.wo.weight)

        def down(block: Block, _: RingCache) -> object:
            return row_kernels.add_linear(x, self.inner, block.feed_forward.w2.weight)

        calls = {
            "norm, q, k, v": (project, 3 * square),
            "attention (two launches)": (attend, kept),
            "wo, residual": (out, square),
            "norm, w1, w3, gate": (feed, 2 * inner),
            "w2, residual": (down, inner),
        }
        return {name: (self.each(call), size) for name, (call, size) in calls.items()}


def times(bench: Bench, rate: float) -> None:
    for name, (run, size) in bench.kernels().items():
        each = graph_time(run) / len(bench.blocks)
        print(f"{name:<28} {each:>8.2f} us, bytes {1e6 * size / rate:>6.2f} us", flush=True)


def whole(bench: Bench, dtype: torch.dtype) -> None:
    one = bench.network.embed(torch.tensor([[5]], device="cuda"))
    for kind in (row.PlainRow, row.FusedRow):
        form = kind(bench.network, bench.cache, bench.rotary, bench.position)
        print(f"{kind.__name__:<28} {graph_time(lambda form=form: form(one)):>8.1f} us", flush=True)
    job = Job(MARS5_AR, MARS5_TEXT_IDS, Mars5Settings())
    speaker = torch.zeros(1, MARS5_AR.hidden_size, device="cuda", dtype=dtype)
    drawer = step.Step(bench.network, speaker, job.sequence(100), job.settings)
    logits = 2 * torch.randn(1, MARS5_AR.vocab_size, device="cuda")
    seen = torch.randint(MARS5_TEXT_IDS, MARS5_AR.vocab_size, (1, 80), device="cuda")
    half = torch.full((1,), 0.5, device="cuda")
    took = graph_time(lambda: drawer.drawn(logits, seen, drawer.penalties[3], half))
    print(f"{'sampling':<28} {took:>8.1f} us", flush=True)


def search(bench: Bench, rate: float) -> None:
    for rows, warps in product((1, 2, 4, 8), (2, 4, 8)):
        row_kernels.ROWS, row_kernels.WARPS = rows, warps
        found = {name: graph_time(run) / len(bench.blocks) for name, (run, _) in bench.kernels().items()}
        line = ", ".join(f"{name} {took:.2f}" for name, took in found.items() if "attention" not in name)
        print(f"rows {rows}, warps {warps}: {line}", flush=True)
    for keys, splits in product((32, 64, 128), (4, 8, 16)):
        row_kernels.KEYS, row_kernels.SPLITS = keys, splits
        run, _ = bench.kernels()["attention (two launches)"]
        print(f"keys {keys}, parts {splits}: attention {graph_time(run) / len(bench.blocks):.2f}", flush=True)


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float16", "float32"))
    parser.add_argument("--position", type=int, default=500)
    parser.add_argument("--search", action="store_true")
    args = parser.parse_args()
    if not torch.cuda.is_available() or row_kernels.triton is None:
        print("nothing was measured: these kernels need an NVIDIA GPU and Triton")
        return
    rate = copy_rate()
    dtype = getattr(torch, args.dtype)
    bench = Bench(dtype, args.position)
    print(
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}, Triton {row_kernels.triton.__version__}"
    )
    print(f"{args.dtype}, position {args.position}, copies at {rate / 1e12:.2f} TB/s")
    times(bench, rate)
    whole(bench, dtype)
    if args.search:
        search(bench, rate)


if __name__ == "__main__":
    main()
