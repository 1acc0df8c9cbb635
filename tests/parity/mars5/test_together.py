"""Diffusions that share calls draw the codes that they draw by themselves, whoever comes and goes.

Where a float64 run has a draw closer than SAFE, float32 may take either class: such runs are counted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from tests.parity.mars5.plain_diffusion import plain_run
from tests.parity.mars5.test_residual_transformer import SAFE, tiny
from tests.sides import ORACLE, SIDES, YARDSTICK, Side
from tests.tiny.mars5_nar import codes, config
from tests.tolerance import assert_within
from torch_ref.limits import Backend, enforce
from tts_core.errors import GenerationError
from tts_core.mars5.diffusion import Cells, Diffusion, first_noise, make_cells
from tts_core.nn.noise import HostNoise

pytestmark = pytest.mark.rest

EVERY_SIDE = pytest.mark.parametrize("side", list(SIDES.values()), ids=list(SIDES))
RUNS = 16


def given(seed: int, **changes: Any) -> tuple[np.ndarray, np.ndarray, Cells, Diffusion]:
    """Text, reference, cells and settings of a run: all lengths differ."""
    random, sizes = np.random.default_rng(seed), config()
    reference = codes(int(random.integers(1, 7)), seed)
    start = first_noise(HostNoise(seed), sizes.n_codebooks, int(random.integers(1, 12)), sizes.n_classes)
    cells = make_cells(start[0], start, reference if seed % 2 else None, n_classes=sizes.n_classes)
    text = random.integers(0, sizes.text_rows, int(random.integers(1, 9))).astype(np.int32)
    settings = Diffusion(
        timesteps=int(random.integers(1, 9)),
        guidance_w=1.0 if seed % 5 == 4 else 2.0 + seed % 3,
        x_0_temp=0.7 + 0.1 * (seed % 2),
        q0_override_steps=seed % 4,
        draws="per class" if seed % 3 == 0 else "per cell",
    )
    return text, reference, cells, replace(settings, **changes)


def beginner(side: Side) -> Callable[..., Any]:
    """Begin the run of a seed on a side."""
    diffusion = side.module("mars5.reverse").ReverseDiffusion(tiny(side))
    return lambda seed, **changes: diffusion.begin(*given(seed, **changes), noise=HostNoise(seed))


def by_itself(run: Any) -> np.ndarray:
    while not run.done:
        run.advance()
    return run.result()


@cache
def expected(seed: int) -> tuple[np.ndarray, float]:
    """Codes in float64, and the margin of the closest draw."""
    plain = plain_run(ORACLE, tiny(ORACLE), *given(seed), HostNoise(seed))
    return plain.states[-1].T, plain.margin


@EVERY_SIDE
@pytest.mark.parametrize("arrivals", [0, 1])
def test_codes_are_those_of_the_run_alone(side: Side, arrivals: int) -> None:
    """Runs join at random steps; one in eight leaves early."""
    random, begin, waiting = np.random.default_rng(arrivals), beginner(side), [*range(RUNS)]
    call, running, ties, compared, shared = side.module("mars5.together").TimestepCall, {}, 0, 0, 0
    while waiting or running:
        if waiting and random.random() < 0.6:
            seed = waiting.pop(0)
            running[seed] = begin(seed)
        if running and random.random() < 0.125:
            del running[int(random.choice([*running]))]
        call(tiny(side), [*running.values()])()
        shared += len(running) > 1
        for seed in [seed for seed, run in running.items() if run.done]:
            made, (exact, margin) = running.pop(seed).result(), expected(seed)
            if margin < SAFE:
                ties += 1
                continue
            compared += 1
            np.testing.assert_array_equal(made, exact, err_msg=f"run {seed}, margin {margin:.1e}")
    assert compared >= RUNS // 2
    assert shared >= RUNS // 2
    assert ties <= 1, f"{ties} of {compared + ties} runs have a near-tie"


def alone(side: Side, seed: int, t: int) -> np.ndarray:
    """Logits of a run by itself, at its first timestep."""
    with side.inference():
        run = beginner(side)(seed, guidance_w=3.0)
        return side.numpy(run.step.logits(run.codes, side.array(np.array([t]))))


@EVERY_SIDE
def test_logits_are_those_of_the_run_alone(side: Side) -> None:
    """Within rounding, at timesteps of their own: nothing of a neighbor reaches a run."""
    begin = beginner(side)
    with side.inference():
        runs = [begin(seed, guidance_w=3.0) for seed in (1, 2, 3)]
        together = side.module("mars5.together").Together(tiny(side), [run.step for run in runs])
        places = [run.step.settings.timesteps - 1 for run in runs]
        made = together.logits([run.codes for run in runs], side.array(np.array(places)))
        for seed, logits, t in zip((1, 2, 3), made, places, strict=True):
            known, exact = (alone(each, seed, t) for each in (YARDSTICK, ORACLE))
            assert_within(side.numpy(logits), known, exact, f"run {seed}")


@EVERY_SIDE
def test_a_run_without_numbers_ends_by_itself(side: Side) -> None:
    begin = beginner(side)
    alone, runs = by_itself(begin(7, timesteps=4)), [begin(5, timesteps=4), begin(7, timesteps=4)]
    step = runs[0].step
    step.source = step.source._replace(positions=step.source.positions * float("nan"))
    call = side.module("mars5.together").TimestepCall(tiny(side), runs)
    while not runs[0].done:
        call()
    with pytest.raises(GenerationError, match="NaN or infinite in float32"):
        runs[0].result()
    np.testing.assert_array_equal(runs[1].result(), alone)


def test_under_the_rules_of_mps() -> None:
    side = SIDES["torch_ref"]
    begin, call = beginner(side), side.module("mars5.together").TimestepCall

    def made() -> list[np.ndarray]:
        runs = [begin(seed, timesteps=3) for seed in (1, 2, 3, 4)]
        step = call(tiny(side), runs)
        for _ in range(3):
            step()
        return [run.result() for run in runs]

    plain = made()
    with enforce(Backend("mps", "2.12.1", "15.0")), torch.inference_mode():
        for own, other in zip(made(), plain, strict=True):
            np.testing.assert_array_equal(own, other)
