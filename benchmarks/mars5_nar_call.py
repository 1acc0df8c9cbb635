"""Measure milliseconds per call of MARS5's diffusion network, in torch_ref and mlx_port.

    python benchmarks/mars5_nar_call.py [--size full|tiny] [--side torch,mlx] [--dtype bfloat16] [--shallow]

`full` is the published shape, `tiny` one for a CPU, both with the same random weights on all sides. A call is
one timestep of a deep clone with guidance: both branches, posterior and draws. A further row leaves out
torch_ref's kernels; "codes alike" is the share of codes that one of its steps draws as the full form does,
from --check equal states. The whole run is all timesteps with the host's numbers. All forms of a side are
warmed up and then alternate, so that a change of the machine's load affects all; the table has median and
range.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from dataclasses import dataclass, replace
from functools import cache
from importlib import metadata
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np

from tts_core.mars5.config import ResidualTransformerConfig, is_norm, residual_transformer_parameter_shapes
from tts_core.mars5.diffusion import FIRST_DRAW, Cells, Diffusion, make_cells
from tts_core.mars5.spec import MARS5_NAR
from tts_core.nn.noise import HostNoise

# H200: cuBLAS was measured at 790 TFLOP/s in half precision; in float32 the data sheet says 67
PEAK = {"bfloat16": 790e12, "float16": 790e12, "float32": 67e12}
READ = 4.2e12  # bytes a second, H200
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
    """Inputs of every side."""

    config: ResidualTransformerConfig
    tensors: dict[str, np.ndarray]
    text: np.ndarray
    reference: np.ndarray
    cells: Cells
    settings: Diffusion


def lengths(size: str) -> dict[str, int]:
    """Usual lengths in frames and text ids."""
    if size == "full":
        return {"prompt": 450, "frames": 450, "text": 80}
    return dict.fromkeys(("prompt", "frames", "text"), 20)


def make_work(args: argparse.Namespace) -> Work:
    config = MARS5_NAR if args.size == "full" else TINY
    random, tensors = np.random.default_rng(0), {}
    for name, shape in residual_transformer_parameter_shapes(config).items():
        value = random.standard_normal(shape, np.float32)
        if is_norm(name):
            tensors[name] = value * np.float32(0.1) + np.float32(name.endswith("weight"))
        else:
            tensors[name] = value * np.float32(
                0.5 if "emb" in name and "timestep" not in name else shape[-1] ** -0.5
            )
    books, k = config.n_codebooks, config.n_classes
    reference = random.integers(0, k - 1, (books, args.prompt)).astype(np.int32)
    made = random.integers(0, k, (books, args.frames)).astype(np.int32)
    cells = make_cells(made[0], made, None if args.shallow else reference, n_classes=k)
    text = random.integers(0, config.text_rows, args.text).astype(np.int32)
    return Work(config, tensors, text, reference, cells, Diffusion(timesteps=args.timesteps))


def torch_side(work: Work, dtype: str, device: str | None = None) -> SimpleNamespace:
    """Build torch_ref's network and its operations. device: None takes the GPU if there is one."""
    import torch

    import torch_ref.mars5.diffusion
    import torch_ref.mars5.encoder
    import torch_ref.mars5.reverse
    from torch_ref.cuda.mars5.reverse import KernelDenoisingStep, runs
    from torch_ref.cuda.mars5.together import make_together
    from torch_ref.mars5.residual_transformer import ResidualTransformer

    torch.set_grad_enabled(False)
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    kind = getattr(torch, dtype)
    with torch.device("meta"):
        network = ResidualTransformer(work.config)
    state = {
        name: torch.from_numpy(x).to(device, torch.float32 if is_norm(name) else kind)
        for name, x in work.tensors.items()
    }
    network.load_state_dict(state, assign=True)
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    array = lambda x: torch.from_numpy(np.ascontiguousarray(x)).to(device)  # noqa: E731
    return SimpleNamespace(
        name=f"torch_ref {torch.__version__} {device}",
        network=network.eval(),
        code=torch_ref.mars5,
        array=array,
        step=KernelDenoisingStep if runs(network) else torch_ref.mars5.reverse.DenoisingStep,
        together=make_together,
        index=lambda t: torch.tensor([t], device=device),
        whole=lambda x: array(x).long(),
        host=lambda x: x.cpu().numpy(),
        run=lambda x: None,
        wait=wait,
    )


def mlx_side(work: Work, dtype: str) -> SimpleNamespace:
    import mlx.core as mx

    import mlx_port.mars5.diffusion
    import mlx_port.mars5.encoder
    import mlx_port.mars5.reverse
    import mlx_port.mars5.together
    from mlx_port.mars5.residual_transformer import ResidualTransformer

    kind, network = getattr(mx, dtype), ResidualTransformer(work.config)
    arrays = [(name, mx.array(x)) for name, x in work.tensors.items()]
    network.load_weights([(name, x if is_norm(name) else x.astype(kind)) for name, x in arrays])
    mx.eval(network.parameters())
    return SimpleNamespace(
        name=f"mlx_port {metadata.version('mlx')} {mx.default_device()}",
        network=network,
        code=mlx_port.mars5,
        array=mx.array,
        step=mlx_port.mars5.reverse.DenoisingStep,
        together=mlx_port.mars5.together.Together,
        index=lambda t: mx.array([t]),
        whole=mx.array,
        host=np.array,
        run=mx.async_eval,
        wait=mx.synchronize,
    )


def read(side: SimpleNamespace, work: Work, settings: Diffusion) -> Any:
    return side.code.reverse.ReverseDiffusion(side.network).read(
        work.text, work.reference, work.cells, settings
    )


class Form:
    """One form of the step, timed over several calls in a row."""

    def __init__(self, side: SimpleNamespace, work: Work, step: Any):
        self.side, self.work, self.step, self.times = side, work, step, list[float]()

    def run(self, calls: int) -> np.ndarray:
        """Run all calls from the first state. Returns the last codes, on the host."""
        side, codes = self.side, self.side.whole(self.work.cells.codes)
        for place in range(calls):
            codes = self.from_state(codes, place)
            side.run(codes)
        return side.host(codes).copy()

    def from_state(self, codes: Any, place: int) -> Any:
        """Run one call."""
        side, t = self.side, max(self.work.settings.timesteps - 1 - place, 0)
        return self.step(codes, side.index(t), side.array(numbers_at(self.work, place)))

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
        for place, (before, after) in enumerate(pairwise(states)):
            made = self.side.host(self.from_state(self.side.whole(before), place))
            same.append((made == after)[~self.work.cells.known].mean())
        return float(np.mean(same))


@cache
def _numbers(seed: int, place: int, frames: int, books: int) -> np.ndarray:
    return HostNoise(seed).uniform(FIRST_DRAW + 1 + place, (2, frames, books))


def numbers_at(work: Work, place: int) -> np.ndarray:
    """Numbers of a call, drawn once: only the whole run includes the host's time."""
    return _numbers(0, place, *work.cells.codes.shape)


def whole_run(side: SimpleNamespace, work: Work) -> float:
    """Seconds of a whole run."""
    diffusion = side.code.reverse.ReverseDiffusion(side.network, side.step)
    begin = time.perf_counter()
    diffusion.run(work.text, work.reference, work.cells, work.settings, noise=HostNoise(1))
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
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", choices=("full", "tiny"), default="tiny")
    parser.add_argument("--side", default="torch,mlx")
    parser.add_argument("--dtype", choices=tuple(PEAK), default="bfloat16")
    parser.add_argument("--prompt", type=int, help="frames of the reference; 450, or 20 for tiny")
    parser.add_argument("--frames", type=int, help="new frames; 450, or 20 for tiny")
    parser.add_argument("--text", type=int, help="text ids; 80, or 20 for tiny")
    parser.add_argument("--shallow", action="store_true", help="do not use the reference as a prompt")
    parser.add_argument("--timesteps", type=int, default=200)
    parser.add_argument("--calls", type=int, default=20, help="calls per run")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--check", type=int, default=3, help="number of timesteps to compare")
    args = parser.parse_args()
    for name, size in lengths(args.size).items():
        setattr(args, name, getattr(args, name) or size)
    work = make_work(args)
    weights, count = sum(x.size for x in work.tensors.values()), flops(work)
    size = 4 if args.dtype == "float32" else 2
    print(f"{platform.platform()}, Python {platform.python_version()}, numpy {np.__version__}")
    kind = "shallow" if args.shallow else "deep"
    print(
        f"MARS5 NAR {args.size}, {args.dtype}, {kind}: {args.prompt} reference, {args.frames} new frames, "
        f"{args.text} text ids; {weights / 1e6:.0f} M parameters, {count / 1e12:.3f} TFLOP a call"
    )
    floor = max(count / PEAK[args.dtype], weights * size / READ)
    print(
        f"floor on an H200: {1000 * floor:.3f} ms ({PEAK[args.dtype] / 1e12:.0f} TFLOP/s, {READ / 1e12} TB/s)"
    )
    for name in args.side.split(","):
        report({"torch": torch_side, "mlx": mlx_side}[name](work, args.dtype), work, args)


def report(side: SimpleNamespace, work: Work, args: argparse.Namespace) -> None:
    given = side.network, read(side, work, work.settings), work.cells, work.settings
    kinds = {"": side.step}
    if side.step is not side.code.reverse.DenoisingStep:
        kinds["kernels and CUDA graph"] = side.code.reverse.DenoisingStep
    forms = {name: Form(side, work, kind(*given)) for name, kind in kinds.items()}
    for form in forms.values():
        form.run(3)
    whole_run(side, work)
    for _ in range(args.runs):
        for form in forms.values():
            form.time(args.calls)
    full = forms.pop("")
    print(f"\n{side.name:<44} {full.times_text}", flush=True)
    seconds = sorted(whole_run(side, work) for _ in range(3))
    steps = work.settings.timesteps
    line = f"{1000 * seconds[1] / steps:>9.3f} ms/call ({1000 * seconds[0] / steps:.2f} to "
    line += f"{1000 * seconds[2] / steps:.2f}), {seconds[1]:.2f} s"
    print(f"{'  whole run, its draws on the host':<44} {line}", flush=True)
    own = [work.cells.codes]
    for place in range(args.check):
        own.append(side.host(full.from_state(side.whole(own[-1]), place)).copy())
    for name, form in forms.items():
        alike = f"  codes alike {form.alike(own):.3%}" if args.check else ""
        print(f"{'  without: ' + name:<44} {form.times_text}{alike}", flush=True)


if __name__ == "__main__":
    main()
