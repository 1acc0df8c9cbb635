"""Several diffusions in one captured call, on a GPU or, without graphs, on a CPU."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tests.tiny.mars5_nar import codes
from tests.tolerance import assert_within
from tests.torch_ref.cuda.eager import eager
from tests.torch_ref.cuda.marks import DEVICE
from tests.torch_ref.mars5.test_reverse import tiny
from torch_ref.cuda.capture import uncollected
from torch_ref.cuda.launch import INTERPRETED, triton
from torch_ref.layers.norm import at_least_float32
from torch_ref.mars5 import reverse, together
from torch_ref.mars5.residual_transformer import ResidualTransformer
from tts_core.mars5.diffusion import Diffusion, first_noise, make_cells
from tts_core.nn.noise import HostNoise

ON_KERNELS = [
    pytest.mark.skipif(triton is None, reason="Triton is not installed: it comes with torch for CUDA"),
    *([] if INTERPRETED else [pytest.mark.cuda]),
]
FRAMES = {1: 6, 2: 3, 3: 9, 4: 1}  # by seed


def begin(network: ResidualTransformer, seed: int, **changes: Any) -> reverse.Run:
    """A run whose lengths are its own; odd seeds are deep clones."""
    start, reference = first_noise(HostNoise(seed), 5, FRAMES[seed], 23), codes(seed + 1, seed)
    cells = make_cells(start[0], start, reference if seed % 2 else None, n_classes=23)
    settings = Diffusion(**{"timesteps": 3 + seed, "q0_override_steps": 1, **changes})
    text = np.random.default_rng(seed).integers(0, 31, 2 + seed).astype(np.int32)
    diffusion = reverse.ReverseDiffusion(network)
    return diffusion.begin(text, reference, cells, settings, noise=HostNoise(seed))


def by_itself(run: reverse.Run) -> np.ndarray:
    while not run.done:
        run.advance()
    return run.result()


def test_the_cpu_takes_the_plain_form() -> None:
    runs = [begin(tiny(), seed) for seed in (1, 2)]
    assert type(together.make_together(tiny(), [run.step for run in runs])) is together.Together


@pytest.mark.parametrize(
    ("device", "form"),
    [
        ("cpu", reverse.GraphStep),
        pytest.param("cuda", reverse.GraphStep, marks=pytest.mark.cuda),
        pytest.param("cuda", reverse.KernelStep, marks=pytest.mark.cuda),
        pytest.param(DEVICE, reverse.KernelStep, marks=ON_KERNELS, id="kernels"),
    ],
)
@pytest.mark.parametrize("draws", ["per cell", "per class"])
def test_captured_runs_join_and_leave(
    form: Any, device: str, draws: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At different timesteps; a single run in between; one leaves early. Each draws as in the plain form."""
    network = tiny(device)
    monkeypatch.setattr(reverse, "make_step", reverse.Step)
    expected = {seed: by_itself(begin(network, seed, draws=draws)) for seed in FRAMES}
    monkeypatch.setattr(reverse, "make_step", form)
    if device == "cpu":
        monkeypatch.setattr(reverse, "capture", eager)
    runs = {seed: begin(network, seed, draws=draws) for seed in FRAMES}
    for seeds, steps in (((1,), 1), ((1, 2), 1), ((3, 1, 4, 2), 2), ((3, 4, 2), 1), ((3, 4), 1)):
        call = together.Call(network, [runs[seed] for seed in seeds])
        for _ in range(steps):
            call()
    for seed in (2, 3, 4):
        np.testing.assert_array_equal(by_itself(runs[seed]), expected[seed], err_msg=f"run {seed}")


@torch.inference_mode()
@pytest.mark.parametrize("guidance_w", [1.0, 3.0])
@pytest.mark.parametrize(
    ("device", "form"),
    [("cpu", reverse.Step), pytest.param(DEVICE, reverse.KernelStep, marks=ON_KERNELS, id="kernels")],
)
def test_logits_are_as_exact_as_the_layers(
    form: Any, device: str, guidance_w: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each run's at its own timestep, in a call of four."""

    def logits_of(network: ResidualTransformer, form: Any, *, shared: bool) -> list[np.ndarray]:
        monkeypatch.setattr(reverse, "make_step", form)
        runs = [begin(network, seed, guidance_w=guidance_w) for seed in FRAMES]
        place = network.text_embed.weight.device
        t = torch.arange(len(runs), device=place)
        if shared:
            step = together.make_together(network, [run.step for run in runs])
            made = step.logits([run.codes for run in runs], t)
        else:
            made = [run.step.logits(run.codes, at) for run, at in zip(runs, t.split(1), strict=True)]
        return [at_least_float32(one).cpu().numpy() for one in made]

    truths = logits_of(tiny().double(), reverse.Step, shared=False)
    plain = logits_of(tiny(device), reverse.Step, shared=False)
    own = logits_of(tiny(device), form, shared=True)
    for seed, found, known, truth in zip(FRAMES, own, plain, truths, strict=True):
        assert_within(found, known, truth, f"run {seed}")


def test_a_call_of_its_own_keeps_no_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once its run shares a call."""
    monkeypatch.setattr(reverse, "make_step", reverse.GraphStep)
    monkeypatch.setattr(reverse, "capture", eager)
    network = tiny()
    first, second = begin(network, 1), begin(network, 2)
    first.advance()
    step = first.step
    assert isinstance(step, reverse.GraphStep)
    assert step.captured.graph is not None
    together.Call(network, [first, second])()
    assert step.captured.graph is None


class Graph:
    """A graph that computes nothing."""

    def replay(self) -> None:
        pass


def test_graphs_are_freed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the collector of cycles: it may run while another graph is captured, and end the capture."""
    monkeypatch.setattr(reverse, "make_step", reverse.GraphStep)
    graphs: list[weakref.ref[Graph]] = []

    def capture(run: Callable[[], torch.Tensor], *_: Any, **__: Any) -> tuple[Graph, torch.Tensor]:
        graph = Graph()
        graphs.append(weakref.ref(graph))
        return graph, run()

    monkeypatch.setattr(reverse, "capture", capture)
    network = tiny()
    runs = [begin(network, seed) for seed in (1, 2)]
    with uncollected():
        runs[0].advance()
        call = together.Call(network, runs)
        assert graphs[0]() is None
        call()
        del call
        assert graphs[1]() is None
        runs[1].advance()
        del runs
        assert graphs[2]() is None
