"""Measure milliseconds per call of MARS5's diffusion network: torch_ref, mlx_port and a plain form.

    python benchmarks/mars5_nar_call.py [--size full|tiny] [--side torch,mlx] [--dtype bfloat16] [--shallow]

`full` is the published shape, `tiny` one for a CPU, both with the same random weights on all sides. A call is
one timestep of a deep clone with guidance: both branches, posterior and draws. `plain` is PyTorch code
written from a description of upstream (plain_mars5_nar.py), in the same dtype. "Codes equal" is the share of
drawn codes that equal the plain form's, from the same states and numbers, over --check timesteps. Further
rows leave out torch_ref's kernels and, besides these, one shortcut each; "codes alike" is the share of codes
that one step draws as the full form does, from --check equal states. The whole run is all timesteps with the
host's numbers. All forms of a side are warmed up and then alternate, so that a change of the machine's load
affects all; the table has median and range.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from importlib import metadata
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
from mars5_nar_variants import mlx_ops, torch_ops, without

from tts_core.mars5.config import ResidualTransformerConfig, is_norm, residual_transformer_parameter_shapes
from tts_core.mars5.diffusion import FIRST_DRAW, Cells, Diffusion, gumbel, make_cells
from tts_core.mars5.schedule import schedule
from tts_core.mars5.spec import MARS5_NAR
from tts_core.nn.noise import HostNoise

# H200: cuBLAS was measured at 790 TFLOP/s in half precision; in float32 the data sheet says 67
PEAK = {"bfloat16": 790e12, "float16": 790e12, "float32": 67e12}
KERNELS = "kernels"
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
    ops = torch_ops(device, kind)
    return SimpleNamespace(
        name=f"torch_ref {torch.__version__} {device}",
        network=network.eval(),
        state=state,
        code=torch_ref.mars5,
        ops=ops,
        **torch_steps(torch_ref.mars5.reverse, network, device),
        index=lambda t: torch.tensor([t], device=device),
        whole=lambda x: ops.array(x).long(),
        host=lambda x: x.cpu().numpy(),
        run=lambda x: None,
        wait=wait,
    )


def torch_steps(reverse: Any, network: Any, device: str) -> dict[str, Any]:
    """The full step, and the one of the network's own layers, whose shortcuts are measured."""
    layers = reverse.GraphStep if device == "cuda" else reverse.Step
    on_kernels = device == "cuda" and reverse.runs(network)
    return {"step": reverse.KernelStep if on_kernels else layers, "layers": layers}


def mlx_side(work: Work, dtype: str) -> SimpleNamespace:
    import mlx.core as mx

    import mlx_port.mars5.diffusion
    import mlx_port.mars5.encoder
    import mlx_port.mars5.reverse
    from mlx_port.mars5.residual_transformer import ResidualTransformer

    kind, network = getattr(mx, dtype), ResidualTransformer(work.config)
    arrays = [(name, mx.array(x)) for name, x in work.tensors.items()]
    network.load_weights([(name, x if is_norm(name) else x.astype(kind)) for name, x in arrays])
    mx.eval(network.parameters())
    return SimpleNamespace(
        name=f"mlx_port {metadata.version('mlx')} {mx.default_device()}",
        network=network,
        code=mlx_port.mars5,
        ops=mlx_ops(kind),
        step=mlx_port.mars5.reverse.Step,
        layers=mlx_port.mars5.reverse.Step,
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
        return self.step(codes, side.index(t), side.ops.array(numbers_at(self.work, place)))

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
    diffusion = side.code.reverse.ReverseDiffusion(side.network)
    begin = time.perf_counter()
    diffusion.run(work.text, work.reference, work.cells, work.settings, noise=HostNoise(1))
    return time.perf_counter() - begin


def make_plain(work: Work, state: dict[str, Any]) -> Callable[..., Any]:
    import torch
    from plain_mars5_nar import Inputs, PlainStep

    device = state["text_embed.weight"].device
    on = lambda x: torch.from_numpy(np.ascontiguousarray(x)).to(device)  # noqa: E731
    tables = schedule(work.settings.timesteps)
    inputs = Inputs(
        on(work.text[None]).long(),
        on(work.reference.T[None]).long(),
        on(work.cells.clean[None]).long(),
        on(work.cells.known[None]),
        *(on(table.copy()) for table in vars(tables).values()),
    )
    step, settings = PlainStep(work.config, state, inputs), work.settings
    return lambda codes, t, unknown, known: step(
        codes[None],
        t,
        unknown,
        known,
        w=settings.guidance_w,
        temp=settings.x_0_temp,
        pinned=settings.q0_override_steps,
    )[0]


def plain_milliseconds(side: SimpleNamespace, work: Work, plain: Any, calls: int, runs: int) -> float:
    shape = (1, *work.cells.codes.shape, work.config.n_classes)
    start, times, top = side.whole(work.cells.codes), [], work.settings.timesteps
    for _ in range(runs + 1):
        codes = start
        side.wait()
        begin = time.perf_counter()
        for place in range(calls):
            draws = side.ops.uniform(shape), side.ops.uniform(shape)
            codes = plain(codes, max(top - 1 - place, 1), *draws)
        side.wait()
        times.append((time.perf_counter() - begin) / calls)
    return 1000 * statistics.median(times[1:])


def plain_states(work: Work, plain: Any, device: Any, steps: int) -> list[np.ndarray]:
    """Run the plain form with the numbers of `check_noise`. Returns its states."""
    import torch

    codes, states = torch.from_numpy(work.cells.codes).long().to(device), [work.cells.codes]
    for place in range(steps):
        uniform = torch.from_numpy(check_noise(work, place)).to(device)
        codes = plain(codes, work.settings.timesteps - 1 - place, uniform[:1], uniform[1:])
        states.append(codes.cpu().numpy())
    return states


def check_noise(work: Work, place: int) -> np.ndarray:
    random = np.random.default_rng(1000 + place)
    return random.random((2, *work.cells.codes.shape, work.config.n_classes), np.float32)


def equal_codes(side: SimpleNamespace, work: Work, states: list[np.ndarray]) -> float:
    """Share of unknown cells whose code equals the plain form's, from each of its states."""
    settings = replace(work.settings, draws="per class")
    step = side.code.reverse.Step(side.network, read(side, work, settings), work.cells, settings)
    same = []
    for place, (before, after) in enumerate(pairwise(states)):
        numbers = side.ops.array(gumbel(check_noise(work, place)))
        made = side.host(step(side.whole(before), side.index(settings.timesteps - 1 - place), numbers))
        assert (made[work.cells.known] == after[work.cells.known]).all(), "known cells differ"
        same.append((made == after)[~work.cells.known].mean())
    return float(np.mean(same))


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
    parser.add_argument("--full-only", action="store_true", help="do not leave out shortcuts")
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
    plain, states = None, {}
    if "torch" in args.side:
        for dtype in dict.fromkeys((args.dtype, "float32")):
            side = torch_side(work, dtype)
            plain = make_plain(work, side.state)
            states[dtype] = plain_states(work, plain, side.state["text_embed.weight"].device, args.check)
            if dtype == args.dtype:
                took = plain_milliseconds(side, work, plain, args.calls, args.runs)
                print(f"\n{'plain, ' + side.name:<44} {took:>9.3f} ms/call", flush=True)
            del side, plain
    for name in args.side.split(","):
        make = {"torch": torch_side, "mlx": mlx_side}[name]
        report(make(work, args.dtype), work, args, states.get(args.dtype))
        if "float32" in states and args.dtype != "float32":
            share = equal_codes(make(work, "float32"), work, states["float32"])
            print(f"{'  codes equal to the plain form, float32':<44} {share:>9.4%}", flush=True)


def report(
    side: SimpleNamespace, work: Work, args: argparse.Namespace, states: list[np.ndarray] | None
) -> None:
    given = side.network, read(side, work, work.settings), work.cells, work.settings
    kinds = {"": side.step}
    if side.step is not side.layers:
        kinds[KERNELS] = side.layers
    kinds |= without(side.ops, side.layers, side.code, work.text, work.reference)
    if side.layers is not side.code.reverse.Step:
        kinds["captured as a CUDA graph"] = side.code.reverse.Step
    if args.full_only:
        kinds = {"": side.step}
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
    if states is not None:
        share = equal_codes(side, work, states)
        print(f"{'  codes equal to the plain form, ' + args.dtype:<44} {share:>9.4%}", flush=True)
    own = [work.cells.codes]
    for place in range(args.check):
        own.append(side.host(full.from_state(side.whole(own[-1]), place)).copy())
    took = statistics.median(full.times)
    for name, form in forms.items():
        line = f"{'  without: ' + name:<44} {form.times_text}  {statistics.median(form.times) - took:+.3f}"
        if name == KERNELS:  # the forms after it leave out something else besides
            took = statistics.median(form.times)
        if args.check and name != "two numbers a cell":  # else it draws from other numbers
            line += f"  codes alike {form.alike(own):.3%}"
        print(line, flush=True)


if __name__ == "__main__":
    main()
