"""Measure milliseconds per call of MARS5's diffusion network, in torch_ref and mlx_port.

    python benchmarks/mars5_nar_call.py [--size full|tiny] [--side torch,mlx] [--dtype bfloat16] [--calls 20]
        [--runs 5]

`full` is the published shape, `tiny` one for a CPU, both with random weights. A call is one timestep of a
deep clone with guidance: both branches, posterior and draws. A further row leaves out torch_ref's kernels;
"codes alike" is the share of codes that one of its steps draws as the full form does, from three equal
states. The whole run is all timesteps with the host's numbers. All forms of a side are warmed up and then
alternate, so that a change of the machine's load affects all; the table has median and range.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from math import prod
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks.lib.random_networks import gpu, network, title
from benchmarks.lib.timing import arguments, machine
from tts_core.mars5.config import ResidualTransformerConfig, is_norm, residual_transformer_parameter_shapes
from tts_core.mars5.diffusion import FIRST_DRAW, Cells, Diffusion, make_cells
from tts_core.mars5.model import MARS5_NAR
from tts_core.nn.noise import HostNoise

# H200: cuBLAS was measured at 790 TFLOP/s in half precision; in float32 the data sheet says 67
PEAK = {"bfloat16": 790e12, "float16": 790e12, "float32": 67e12}
READ = 4.2e12  # bytes a second, H200
TIMESTEPS, CHECKED = 200, 3  # in all; states from which codes of two forms are compared
TINY = replace(
    MARS5_NAR,
    text_rows=60,
    hidden_size=64,
    intermediate_size=96,
    encoder_layers=2,
    decoder_layers=2,
    num_attention_heads=4,
    timestep_size=32,
    speaker_layers=1,
    speaker_heads=4,
    speaker_intermediate_size=96,
)


@dataclass(frozen=True)
class Work:
    """Inputs of every side: a deep clone. text: ids.  reference: (Q, frames) codes."""

    config: ResidualTransformerConfig
    text: np.ndarray
    reference: np.ndarray
    cells: Cells
    settings: Diffusion


def make_work(config: ResidualTransformerConfig, frames: int, text: int) -> Work:
    """Draw inputs. frames: of the reference, and as many new ones.  text: number of its ids."""
    random, books, k = np.random.default_rng(0), config.n_codebooks, config.n_classes
    reference = random.integers(0, k - 1, (books, frames)).astype(np.int32)
    made = random.integers(0, k, (books, frames)).astype(np.int32)
    cells = make_cells(made[0], made, reference, n_classes=k)
    ids = random.integers(0, config.text_rows, text).astype(np.int32)
    return Work(config, ids, reference, cells, Diffusion(timesteps=TIMESTEPS))


def law(name: str, shape: tuple[int, ...]) -> tuple[float, float]:
    if is_norm(name):
        return float(name.endswith("weight")), 0.1
    return 0, 0.5 if "emb" in name and "timestep" not in name else shape[-1] ** -0.5


def torch_side(config: ResidualTransformerConfig, dtype: str) -> SimpleNamespace:
    """Build torch_ref's network and its operations."""
    import torch

    import torch_ref.mars5.reverse
    from torch_ref.cuda.mars5.reverse import KernelDenoisingStep, runs

    torch.set_grad_enabled(False)
    device = gpu()
    built = network("torch", "mars5_nar", config, dtype, device=device, law=law)
    array = lambda x: torch.from_numpy(np.ascontiguousarray(x)).to(device)  # noqa: E731
    return SimpleNamespace(
        name=title("torch", device),
        network=built,
        reverse=torch_ref.mars5.reverse,
        array=array,
        step=KernelDenoisingStep if runs(built) else torch_ref.mars5.reverse.DenoisingStep,
        index=lambda t: torch.tensor([t], device=device),
        whole=lambda x: array(x).long(),
        host=lambda x: x.cpu().numpy(),
        run=lambda x: None,
        wait=torch.cuda.synchronize if device == "cuda" else lambda: None,
    )


def mlx_side(config: ResidualTransformerConfig, dtype: str) -> SimpleNamespace:
    built = network("mlx", "mars5_nar", config, dtype, law=law)  # mlx_port before mlx.core, for its BLAS
    import mlx.core as mx

    import mlx_port.mars5.reverse

    return SimpleNamespace(
        name=title("mlx"),
        network=built,
        reverse=mlx_port.mars5.reverse,
        array=mx.array,
        step=mlx_port.mars5.reverse.DenoisingStep,
        index=lambda t: mx.array([t]),
        whole=mx.array,
        host=np.array,
        run=mx.async_eval,
        wait=mx.synchronize,
    )


class Form:
    """One form of the step, timed over several calls in a row."""

    def __init__(self, side: SimpleNamespace, work: Work, step: Any):
        self.side, self.work, self.step, self.times = side, work, step, list[float]()

    def run(self, calls: int) -> np.ndarray:
        """Run all calls from the first state. Returns the last codes, on the host."""
        side, codes = self.side, self.side.whole(self.work.cells.codes)
        for index in range(calls):
            codes = self.from_state(codes, index)
            side.run(codes)
        return side.host(codes).copy()

    def from_state(self, codes: Any, index: int) -> Any:
        """Run one call."""
        side, t = self.side, max(self.work.settings.timesteps - 1 - index, 0)
        return self.step(codes, side.index(t), side.array(numbers_at(self.work, index)))

    def time(self, calls: int) -> None:
        """Run once more and record the time."""
        self.side.wait()
        begin = time.perf_counter()
        self.run(calls)
        self.times.append(1000 * (time.perf_counter() - begin) / calls)

    @property
    def times_text(self) -> str:
        """Median and range so far."""
        return (
            f"{statistics.median(self.times):>9.3f} ms/call ({min(self.times):.2f} to {max(self.times):.2f})"
        )

    def alike(self, states: list[np.ndarray]) -> float:
        """Share of unknown cells whose code, drawn in one step from each state, equals the next state's."""
        same = []
        for index, (before, after) in enumerate(pairwise(states)):
            made = self.side.host(self.from_state(self.side.whole(before), index))
            same.append((made == after)[~self.work.cells.known].mean())
        return float(np.mean(same))


@cache
def _numbers(seed: int, index: int, frames: int, books: int) -> np.ndarray:
    return HostNoise(seed).uniform(FIRST_DRAW + 1 + index, (2, frames, books))


def numbers_at(work: Work, index: int) -> np.ndarray:
    """Numbers of a call, drawn once: only the whole run includes the host's time."""
    return _numbers(0, index, *work.cells.codes.shape)


def whole_run(side: SimpleNamespace, work: Work) -> float:
    """Seconds of a whole run."""
    diffusion = side.reverse.ReverseDiffusion(side.network, side.step)
    begin = time.perf_counter()
    run = diffusion.begin(work.text, work.reference, work.cells, work.settings, noise=HostNoise(1))
    while not run.done:
        run.step()
    run.result()
    return time.perf_counter() - begin


def flops(work: Work) -> float:
    """Floating-point operations of one call with every shortcut, attention included."""
    c, known = work.config, work.cells.known
    d, ff, rows = c.hidden_size, c.intermediate_size, len(work.text) + 1
    frames, branches = len(known), 2 if work.settings.guided else 1
    unknown = frames - work.cells.unknown_from[0]
    encoder = c.encoder_layers * rows * (4 * d * d + 3 * d * ff + 2 * rows * d)
    own, cross = 4 * d * d + 2 * frames * d, 2 * d * d + 2 * rows * d
    decoder = c.decoder_layers * (frames * (own + cross + 3 * d * ff) + rows * 2 * d * d)
    shared = frames * own  # the first layer's self-attention, once for both branches
    heads = unknown * (c.n_output_codebooks - work.cells.unknown_from[1]) * d * c.n_classes
    return 2.0 * (branches * (encoder + decoder + heads) - (branches - 1) * shared)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--size", choices=("full", "tiny"), default="tiny")
    parser.add_argument("--side", default="torch,mlx")
    parser.add_argument("--dtype", choices=tuple(PEAK), default="bfloat16")
    parser.add_argument("--calls", type=int, default=20, help="calls per run")
    parser.add_argument("--runs", type=int, default=5)
    args = parser.parse_args()
    config, frames, text = (MARS5_NAR, 450, 80) if args.size == "full" else (TINY, 20, 20)
    work = make_work(config, frames, text)
    weights, count = sum(map(prod, residual_transformer_parameter_shapes(config).values())), flops(work)
    size = 4 if args.dtype == "float32" else 2
    print(machine())
    print(
        f"MARS5 NAR {args.size}, {args.dtype}, deep: {frames} frames of reference and as many new ones, "
        f"{text} text ids; {weights / 1e6:.0f} M parameters, {count / 1e12:.3f} TFLOP a call"
    )
    floor = max(count / PEAK[args.dtype], weights * size / READ)
    print(
        f"floor on an H200: {1000 * floor:.3f} ms ({PEAK[args.dtype] / 1e12:.0f} TFLOP/s, {READ / 1e12} TB/s)"
    )
    for name in args.side.split(","):
        report({"torch": torch_side, "mlx": mlx_side}[name](config, args.dtype), work, args.calls, args.runs)


def report(side: SimpleNamespace, work: Work, calls: int, runs: int) -> None:
    """Measure a side's forms by turns and print them."""
    reading = side.reverse.ReverseDiffusion(side.network).read(
        work.text, work.reference, work.cells, work.settings
    )
    given = side.network, reading, work.cells, work.settings
    kinds = {"": side.step}
    if side.step is not side.reverse.DenoisingStep:
        kinds["kernels and CUDA graph"] = side.reverse.DenoisingStep
    forms = {name: Form(side, work, kind(*given)) for name, kind in kinds.items()}
    for form in forms.values():
        form.run(3)
    whole_run(side, work)
    for _ in range(runs):
        for form in forms.values():
            form.time(calls)
    full = forms.pop("")
    print(f"\n{side.name:<44} {full.times_text}", flush=True)
    seconds = sorted(whole_run(side, work) for _ in range(3))
    steps = work.settings.timesteps
    line = f"{1000 * seconds[1] / steps:>9.3f} ms/call ({1000 * seconds[0] / steps:.2f} to "
    line += f"{1000 * seconds[2] / steps:.2f}), {seconds[1]:.2f} s"
    print(f"{'  whole run, its draws on the host':<44} {line}", flush=True)
    own = [work.cells.codes]
    for index in range(CHECKED):
        own.append(side.host(full.from_state(side.whole(own[-1]), index)).copy())
    for name, form in forms.items():
        alike = f"codes alike {form.alike(own):.3%}"
        print(f"{'  without: ' + name:<44} {form.times_text}  {alike}", flush=True)


if __name__ == "__main__":
    main()
