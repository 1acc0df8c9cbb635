"""Count the classes that a seed of MARS5's diffusion draws differently on another backend.

    python benchmarks/mars5_seeds.py [--size full|tiny] [--on torch,mlx,torch-cpu] [--dtype float32]
        [--steps 40] [--sets 5] [--runs 2] [--timesteps 200]

The first backend's run provides the states. From --steps of them, spread over the timesteps, every backend
draws all unknown cells --sets times with the default draws. Reported are the number of cells that differ from
the first backend's, and the mean absolute difference of log-probabilities where the first gives a class more
than one in a million. Whole runs follow, each backend from its own states, with the number of codes that
differ at the end.
"""

from __future__ import annotations

import argparse
import platform
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import mars5_nar_call as calls
import numpy as np

from tts_core.mars5.diffusion import first_noise, make_cells
from tts_core.nn.noise import HostNoise


def backend(name: str, work: calls.Work, dtype: str) -> SimpleNamespace:
    """Build a side of mars5_nar_call with its plain step."""
    if name == "mlx":
        import mlx.core as mx

        side = calls.mlx_side(work, dtype)
        side.log = lambda log_p: np.array(log_p.astype(mx.float32))
    else:
        side = calls.torch_side(work, dtype, device="cpu" if name == "torch-cpu" else None)
        side.log = lambda log_p: log_p.float().cpu().numpy()
    side.short = name
    given = side.network, calls.read(side, work, work.settings), work.cells, work.settings
    side.plain = side.code.reverse.DenoisingStep(*given)
    return side


def drawn(side: SimpleNamespace, work: calls.Work, codes: np.ndarray, t: int, sets: int) -> tuple[Any, Any]:
    """Compute log-probabilities of unknown cells, and `sets` draws from them."""
    step, made = side.plain, []
    given = side.whole(codes), side.index(t)
    log_p = step.log_posterior(step.logits(*given), *given)
    for place in range(sets):
        numbers = HostNoise(1000 + place).uniform(t, (2, *codes.shape))
        own = side.array(numbers[:, step.first_frame :, step.first_book :])
        made.append(side.host(side.code.diffusion.draw_per_cell(log_p, own)))
    return side.log(log_p), np.stack(made)


def from_equal_states(sides: list[SimpleNamespace], work: calls.Work, steps: int, sets: int) -> None:
    first, *others = sides
    top = work.settings.timesteps
    compared = {int(t) for t in np.linspace(top - 1, 0, min(steps, top))}
    apart = {side.short: list[float]() for side in others}
    unlike, count = dict.fromkeys(apart, 0), 0
    codes = work.cells.codes
    for place, t in enumerate(range(top - 1, -1, -1)):
        if t in compared:
            log_p, made = drawn(first, work, codes, t, sets)
            count, likely = count + made.size, log_p > np.log(1e-6)
            for side in others:
                own, theirs = drawn(side, work, codes, t, sets)
                apart[side.short].append(float(np.abs(own - log_p)[likely].mean()))
                unlike[side.short] += int((theirs != made).sum())
        if len(compared) == 1 and t == max(compared):
            break
        numbers = first.array(calls.numbers_at(work, place))
        codes = first.host(first.plain(first.whole(codes), first.index(t), numbers)).copy()
    for name, number in unlike.items():
        line = f"{number} of {count} cells differ ({1e6 * number / count:.2f} in a million)"
        line += f", log-probabilities by {np.mean(apart[name]):.1e}"
        print(f"{first.short} and {name}, equal states: {line}", flush=True)


def whole_runs(sides: list[SimpleNamespace], work: calls.Work, runs: int) -> None:
    books, k = work.config.n_codebooks, work.config.n_classes
    for seed in range(runs):
        noise = HostNoise(seed)
        start = first_noise(noise, books, int((~work.cells.known[:, 1]).sum()), k)
        prompt = work.reference if work.cells.known[:, 1].any() else None
        cells = make_cells(work.cells.clean[-start.shape[1] :, 0], start, prompt, n_classes=k)
        made = [
            side.code.reverse.ReverseDiffusion(side.network).run(
                work.text, work.reference, cells, work.settings, noise=noise
            )
            for side in sides
        ]
        new = start[1:].size
        unlike = [int((codes != made[0]).sum()) for codes in made[1:]]
        named = ", ".join(f"{side.short} {n}" for side, n in zip(sides[1:], unlike, strict=True))
        print(
            f"seed {seed}, whole runs: codes of {new} that differ from {sides[0].short}'s: {named}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", choices=("full", "tiny"), default="tiny")
    parser.add_argument("--on", default="torch,mlx")
    parser.add_argument("--dtype", choices=tuple(calls.PEAK), default="float32")
    parser.add_argument("--prompt", type=int, help="frames of the reference; 450, or 20 for tiny")
    parser.add_argument("--frames", type=int, help="new frames; 450, or 20 for tiny")
    parser.add_argument("--text", type=int, help="text ids; 80, or 20 for tiny")
    parser.add_argument("--shallow", action="store_true", help="do not use the reference as a prompt")
    parser.add_argument("--timesteps", type=int, default=200)
    parser.add_argument("--steps", type=int, default=40, help="number of states to compare")
    parser.add_argument("--sets", type=int, default=5, help="draws from each state")
    parser.add_argument("--runs", type=int, default=2, help="whole runs, one seed each")
    parser.add_argument(
        "--scale", type=float, default=1.0, help="factor of the heads: trained logits are larger"
    )
    args = parser.parse_args()
    for name, size in calls.lengths(args.size).items():
        setattr(args, name, getattr(args, name) or size)
    work = calls.make_work(args)
    if args.scale != 1:
        heads = {
            n: x * np.float32(args.scale) for n, x in work.tensors.items() if n.startswith("residual_dec")
        }
        work = replace(work, tensors=work.tensors | heads)
    print(f"{platform.platform()}, Python {platform.python_version()}, numpy {np.__version__}")
    sides = [backend(name, work, args.dtype) for name in args.on.split(",")]
    print(f"MARS5 NAR {args.size}, {args.dtype}: " + "; ".join(side.name for side in sides), flush=True)
    from_equal_states(sides, work, args.steps, args.sets)
    whole_runs(sides, work, args.runs)


if __name__ == "__main__":
    main()
