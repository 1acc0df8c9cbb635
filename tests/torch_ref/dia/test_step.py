"""A captured step's fixed buffers hold what the growing cache holds; captured on a GPU, it draws the same."""

import weakref
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import torch_ref.dia.step as steps
from torch_ref import DiaPipeline
from torch_ref.layers.cache import KeyValueCache
from tts_core.prompt import Prompt

TEXTS = ["[S1] One, two.", "[S2] a"]
PROMPTS = [Prompt.of(text="[S1] Before.", codes=np.arange(36, dtype=np.int32).reshape(4, 9)), None]


def buffers(cache: KeyValueCache) -> tuple[torch.Tensor, torch.Tensor]:
    assert cache.buffers is not None
    return cache.buffers


@torch.inference_mode()
def test_fixed_cache(published: Path) -> None:
    """Logits row by row, from a prefill of five rows on, in float64 to rounding."""
    network = DiaPipeline.load(published, device="cpu", dtype="float64").engine.network
    rows = torch.from_numpy(np.random.default_rng(1).integers(0, 63, (2, 12, 4)))
    source = network.read([torch.tensor([1, 70, 71])], network.encode_nothing())
    growing = network.new_cache()
    network.next_logits(rows[:, :5], growing, source)
    position, mask = torch.tensor([5]), torch.zeros(1, 1, 1, 16, dtype=torch.bool)
    held = [(buffers(cache)[0].clone(), buffers(cache)[1].clone()) for cache in growing]
    fixed = steps._moved(held, 16, 5, position, mask)
    assert len(fixed) == len(growing)
    assert held == []
    for row in range(5, 12):
        mask.copy_(torch.arange(16) <= position)
        got = network.next_logits(rows[:, row : row + 1], fixed, source)
        position.add_(1)
        expected = network.next_logits(rows[:, row : row + 1], growing, source)
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)


@torch.inference_mode()
def test_buffers_that_are_outgrown_are_freed(published: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the growing cache, and from a captured step: one layer at most is there twice."""
    network = DiaPipeline.load(published, device="cpu").engine.network
    step = steps.GraphStep(
        network, network.read([torch.tensor([5, 6])], None), network.config.sampling, guided=False
    )
    rows = torch.from_numpy(np.random.default_rng(2).integers(0, 60, (1, 5, 4)))
    step(rows, None)
    position, mask = torch.tensor([5]), torch.zeros(1, 1, 1, 16, dtype=torch.bool)
    contents = [[buffer[:, :, :5].clone() for buffer in buffers(cache)] for cache in step.cache]
    assert len(contents) > 1
    grow = steps._grown
    for capacity in (8, 16):
        held = step._release()
        before = [[weakref.ref(buffer) for buffer in layer] for layer in held]
        twice: list[int] = []

        def watched(*given):
            alive = [any(buffer() is not None for buffer in layer) for layer in before]  # noqa: B023
            twice.append(alive.count(True))  # noqa: B023
            return grow(*given)

        monkeypatch.setattr(steps, "_grown", watched)
        step.fixed = steps._moved(held, capacity, 5, position, mask)
        layers = len(before)
        assert twice == [left for left in range(layers, 0, -1) for _ in "kv"]
        assert all(buffer() is None for layer in before for buffer in layer)
        assert all(cache.keys.shape[2] == cache.values.shape[2] == capacity for cache in step.fixed)
        kept = [[cache.keys[:, :, :5], cache.values[:, :, :5]] for cache in step.fixed]
        torch.testing.assert_close(kept, contents, rtol=0, atol=0)
        monkeypatch.setattr(step, "graph", "captured")


SETTINGS = [{}, {"temperature": 0.0}, {"cfg_scale": 0.0}, {"cfg_scale": 0.0, "temperature": 0.0}]


class Eager:
    """Stands for a CUDA graph on a CPU: runs the work again, into the same result."""

    def __init__(self, run: Callable[[], torch.Tensor], result: torch.Tensor):
        self.run, self.result = run, result

    def replay(self) -> None:
        self.result.copy_(self.run())


def eager(run: Callable[[], torch.Tensor], device: torch.device, *, again: Callable[[], None]) -> tuple:
    """As `capture`: the work runs once to warm up, and the capture itself computes nothing."""
    result = torch.full_like(run(), -7)
    again()
    return Eager(run, result), result


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_captured_step(published: Path, settings: dict, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Buffers of 16, 32 and 64 rows. float32: in bfloat16 the two kernels' roundings decide near-ties."""
    voice = DiaPipeline.load(published, device=device, dtype="float32")
    plain = voice.generate_codes(TEXTS, PROMPTS, seed=4, max_frames=24, **settings)
    made: list[steps.GraphStep] = []

    def make(*given: Any, **named: Any) -> steps.GraphStep:
        made.append(steps.GraphStep(*given, **named))
        return made[-1]

    monkeypatch.setattr(steps, "FIRST_CAPACITY", 4)
    monkeypatch.setattr("torch_ref.dia.engine.make_step", make)
    if device == "cpu":
        monkeypatch.setattr(steps, "capture", eager)
    captured = voice.generate_codes(TEXTS, PROMPTS, seed=4, max_frames=24, **settings)
    for one, two in zip(captured, plain, strict=True):
        np.testing.assert_array_equal(one, two)
    [step] = made
    assert step.capacity == 64
    assert all(cache.buffers is None for cache in step.cache)


def test_what_the_graph_reads_stays(published: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph holds no tensor: those of the work that was captured must be held by the step."""
    voice = DiaPipeline.load(published, device="cpu", dtype="float32")
    network, sampling = voice.engine.network, voice.config.sampling
    read: list[weakref.ref] = []

    def forgetful(run: Callable[[], torch.Tensor], device: torch.device, *, again: Callable[[], None]):
        cells = [cell.cell_contents for cell in run.__closure__ or ()]
        read.extend(weakref.ref(one) for one in cells if isinstance(one, torch.Tensor))
        return SimpleNamespace(replay=lambda: None), run()

    monkeypatch.setattr(steps, "capture", forgetful)
    step = steps.GraphStep(network, network.read([torch.tensor([5, 6])], None), sampling, guided=False)
    rows = torch.zeros(1, 1, network.config.decoder_config.num_channels, dtype=torch.long)
    with torch.inference_mode():
        step(rows, None)
        step(rows, None)
    assert len(read) >= 3
    assert all(one() is not None for one in read)


def test_the_cpu_takes_the_plain_step(published: Path) -> None:
    voice = DiaPipeline.load(published, device="cpu")
    source = voice.engine.network.read([torch.tensor([5, 6])], None)
    assert (
        type(steps.make_step(voice.engine.network, source, voice.config.sampling, guided=False)) is steps.Step
    )
