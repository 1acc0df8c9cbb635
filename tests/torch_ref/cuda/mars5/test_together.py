"""Several diffusions in one captured call: each draws as it does in the plain form."""

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
from tests.torch_ref.cuda.mars5.diffusions import tiny
from tests.torch_ref.cuda.mars5.layers import on_layers as on_layers
from torch_ref.cuda.capture import uncollected
from torch_ref.cuda.mars5 import reverse
from torch_ref.cuda.mars5.together import KernelTogether, make_together
from torch_ref.cuda.triton import INTERPRETED, triton
from torch_ref.limits.remedies import at_least_float32
from torch_ref.mars5.residual_transformer import ResidualTransformer
from torch_ref.mars5.reverse import DenoisingStep, DiffusionRun, ReverseDiffusion
from torch_ref.mars5.together import TimestepCall, Together
from tts_core.mars5.diffusion import Diffusion, first_noise, make_cells
from tts_core.nn.noise import HostNoise

ON_KERNELS = [
    pytest.mark.skipif(triton is None, reason="Triton is not installed: it comes with torch for CUDA"),
    pytest.mark.slow if INTERPRETED else pytest.mark.cuda,
]
FRAMES = {1: 6, 2: 3, 3: 9, 4: 1}  # by seed


def begin(network: ResidualTransformer, form: Any, seed: int, **changes: Any) -> DiffusionRun:
    """A run whose lengths are its own; odd seeds are deep clones."""
    start, reference = first_noise(HostNoise(seed), 5, FRAMES[seed], 23), codes(seed + 1, seed)
    cells = make_cells(start[0], start, reference if seed % 2 else None, n_classes=23)
    settings = Diffusion(**{"timesteps": 3 + seed, "q0_override_steps": 1, **changes})
    text = np.random.default_rng(seed).integers(0, 31, 2 + seed).astype(np.int32)
    diffusion = ReverseDiffusion(network, form)
    return diffusion.begin(text, reference, cells, settings, noise=HostNoise(seed))


def by_itself(run: DiffusionRun) -> np.ndarray:
    while not run.done:
        run.advance()
    return run.result()


@pytest.mark.usefixtures("on_layers")
@pytest.mark.parametrize(
    ("form", "shared"), [(DenoisingStep, Together), (reverse.KernelDenoisingStep, KernelTogether)]
)
def test_the_form_is_that_of_the_runs_own_steps(form: Any, shared: type[Together]) -> None:
    runs = [begin(tiny(), form, seed) for seed in (1, 2)]
    assert type(make_together(tiny(), [run.step for run in runs])) is shared


def join_and_leave(device: str, draws: str) -> None:
    """At different timesteps; a single run in between; one leaves early. Each draws as in the plain form."""
    network = tiny(device)
    expected = {seed: by_itself(begin(network, DenoisingStep, seed, draws=draws)) for seed in FRAMES}
    runs = {seed: begin(network, reverse.KernelDenoisingStep, seed, draws=draws) for seed in FRAMES}
    for seeds, steps in (((1,), 1), ((1, 2), 1), ((3, 1, 4, 2), 2), ((3, 4, 2), 1), ((3, 4), 1)):
        call = TimestepCall(network, [runs[seed] for seed in seeds], make_together)
        for _ in range(steps):
            call()
    for seed in (2, 3, 4):
        np.testing.assert_array_equal(by_itself(runs[seed]), expected[seed], err_msg=f"run {seed}")


@pytest.mark.usefixtures("on_layers")
def test_captured_runs_join_and_leave() -> None:
    """Without kernels, and so without their draws."""
    join_and_leave("cpu", "per class")


@pytest.mark.parametrize("device", [pytest.param(DEVICE, marks=ON_KERNELS)])
@pytest.mark.parametrize("draws", ["per cell", "per class"])
def test_captured_runs_join_and_leave_on_kernels(
    device: str, draws: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if device == "cpu":
        monkeypatch.setattr(reverse, "capture", eager)
    join_and_leave(device, draws)


@torch.inference_mode()
@pytest.mark.parametrize("guidance_w", [1.0, 3.0])
@pytest.mark.parametrize(
    ("device", "form"),
    [
        ("cpu", DenoisingStep),
        pytest.param(DEVICE, reverse.KernelDenoisingStep, marks=ON_KERNELS, id="kernels"),
    ],
)
def test_logits_are_as_exact_as_the_layers(form: Any, device: str, guidance_w: float) -> None:
    """Each run's at its own timestep, in a call of four."""

    def logits_of(network: ResidualTransformer, form: Any, *, shared: bool) -> list[np.ndarray]:
        runs = [begin(network, form, seed, guidance_w=guidance_w) for seed in FRAMES]
        place = network.text_embed.weight.device
        t = torch.arange(len(runs), device=place)
        if shared:
            step = make_together(network, [run.step for run in runs])
            made = step.logits([run.codes for run in runs], t)
        else:
            made = [run.step.logits(run.codes, at) for run, at in zip(runs, t.split(1), strict=True)]
        return [at_least_float32(one).cpu().numpy() for one in made]

    truths = logits_of(tiny().double(), DenoisingStep, shared=False)
    plain = logits_of(tiny(device), DenoisingStep, shared=False)
    own = logits_of(tiny(device), form, shared=True)
    for seed, found, known, truth in zip(FRAMES, own, plain, truths, strict=True):
        assert_within(found, known, truth, f"run {seed}")


@pytest.mark.usefixtures("on_layers")
def test_a_call_of_its_own_keeps_no_graph() -> None:
    """Once its run shares a call."""
    network = tiny()
    first, second = (begin(network, reverse.KernelDenoisingStep, seed, draws="per class") for seed in (1, 2))
    first.advance()
    step = first.step
    assert isinstance(step, reverse.KernelDenoisingStep)
    assert step.captured.graph is not None
    TimestepCall(network, [first, second], make_together)()
    assert step.captured.graph is None


class Graph:
    """A graph that computes nothing."""

    def replay(self) -> None:
        pass


@pytest.mark.usefixtures("on_layers")
def test_graphs_are_freed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the collector of cycles: it may run while another graph is captured, and end the capture."""
    graphs: list[weakref.ref[Graph]] = []

    def capture(run: Callable[[], torch.Tensor], *_: Any, **__: Any) -> tuple[Graph, torch.Tensor]:
        graph = Graph()
        graphs.append(weakref.ref(graph))
        return graph, run()

    monkeypatch.setattr(reverse, "capture", capture)
    network = tiny()
    runs = [begin(network, reverse.KernelDenoisingStep, seed, draws="per class") for seed in (1, 2)]
    with uncollected():
        runs[0].advance()
        call = TimestepCall(network, runs, make_together)
        assert graphs[0]() is None
        call()
        del call
        assert graphs[1]() is None
        runs[1].advance()
        del runs
        assert graphs[2]() is None
