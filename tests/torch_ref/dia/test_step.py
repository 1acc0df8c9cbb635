"""A captured step's fixed buffers equal the growing cache; captured on a GPU, it draws the same ids."""

import weakref
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import torch_ref.dia.step as steps
from tests.torch_ref.cuda.eager import eager
from torch_ref import DiaPipeline
from torch_ref.layers.cache import KeyValueCache
from tts_core.prompt import Prompt

TEXTS = ["[S1] One, two.", "[S2] a"]
PROMPTS = [Prompt.of(text="[S1] Before.", codes=np.arange(36, dtype=np.int32).reshape(4, 9)), None]


def buffers(cache: KeyValueCache) -> tuple[torch.Tensor, torch.Tensor]:
    assert cache.buffers is not None
    return cache.buffers


def copied(caches: list[KeyValueCache]) -> list[KeyValueCache]:
    """Caches with the same rows in buffers of their own."""
    copies = [KeyValueCache() for _ in caches]
    for copy, cache in zip(copies, caches, strict=True):
        keys, values = buffers(cache)
        copy.buffers, copy.length = (keys.clone(), values.clone()), cache.length
    return copies


@torch.inference_mode()
def test_fixed_cache(published: Path) -> None:
    """Logits row by row after a prefill of five rows, in float64 to rounding."""
    network = DiaPipeline.load(published, device="cpu", dtype="float64").engine.network
    rows = torch.from_numpy(np.random.default_rng(1).integers(0, 63, (2, 12, 4)))
    source = network.read([torch.tensor([1, 70, 71])], network.encode_nothing())
    growing = network.new_cache()
    network.next_logits(rows[:, :5], growing, source)
    position, mask = torch.tensor([5]), torch.zeros(1, 1, 1, 16, dtype=torch.bool)
    step = steps.GraphStep(network, source, network.config.sampling, guided=True, rows=16)
    fixed = [step._moved(cache, position, mask) for cache in copied(growing)]
    for row in range(5, 12):
        mask.copy_(torch.arange(16) <= position)
        got = network.next_logits(rows[:, row : row + 1], fixed, source)
        position.add_(1)
        expected = network.next_logits(rows[:, row : row + 1], growing, source)
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)


@torch.inference_mode()
def test_the_growing_buffers_are_freed(published: Path) -> None:
    """Layer by layer: at most one layer exists twice."""
    network = DiaPipeline.load(published, device="cpu").engine.network
    source = network.read([torch.tensor([5, 6])], None)
    step = steps.GraphStep(network, source, network.config.sampling, guided=False, rows=16)
    step(torch.from_numpy(np.random.default_rng(2).integers(0, 60, (1, 5, 4))), None)
    position, mask = torch.tensor([5]), torch.zeros(1, 1, 1, 16, dtype=torch.bool)
    for cache in step.cache:
        before = [weakref.ref(buffer) for buffer in buffers(cache)]
        contents = [buffer[:, :, :5].clone() for buffer in buffers(cache)]
        fixed = step._moved(cache, position, mask)
        assert all(buffer() is None for buffer in before)
        assert fixed.keys.shape[2] == fixed.values.shape[2] == 16
        kept = [fixed.keys[:, :, :5], fixed.values[:, :, :5]]
        torch.testing.assert_close(kept, contents, rtol=0, atol=0)


SETTINGS = [{}, {"temperature": 0.0}, {"cfg_scale": 0.0}, {"cfg_scale": 0.0, "temperature": 0.0}]


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_captured_step(published: Path, settings: dict, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In float32: in bfloat16 the two kernels' rounding decides near-ties."""
    voice = DiaPipeline.load(published, device=device, dtype="float32")
    plain = voice.generate_codes(TEXTS, PROMPTS, seed=4, max_frames=24, **settings)
    made: list[steps.GraphStep] = []

    def make(*given: Any, **named: Any) -> steps.GraphStep:
        made.append(steps.GraphStep(*given, **named))
        return made[-1]

    monkeypatch.setattr("torch_ref.dia.engine.make_step", make)
    monkeypatch.setattr("torch_ref.dia.engine.few_rows", lambda network: None)  # as on a GPU
    if device == "cpu":
        monkeypatch.setattr(steps, "capture", eager)
    captured = voice.generate_codes(TEXTS, PROMPTS, seed=4, max_frames=24, **settings)
    for one, two in zip(captured, plain, strict=True):
        np.testing.assert_array_equal(one, two)
    [step] = made
    assert all(cache.buffers is None for cache in step.cache)


def test_what_the_graph_reads_stays(published: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph keeps no tensor alive: the step must hold those of the captured work."""
    voice = DiaPipeline.load(published, device="cpu", dtype="float32")
    network, sampling = voice.engine.network, voice.config.sampling
    read: list[weakref.ref] = []

    def forgetful(run: Callable[[], torch.Tensor], device: torch.device, *, again: Callable[[], None]):
        cells = [cell.cell_contents for cell in run.__closure__ or ()]
        read.extend(weakref.ref(one) for one in cells if isinstance(one, torch.Tensor))
        return SimpleNamespace(replay=lambda: None), run()

    monkeypatch.setattr(steps, "capture", forgetful)
    source = network.read([torch.tensor([5, 6])], None)
    step = steps.GraphStep(network, source, sampling, guided=False, rows=8)
    rows = torch.zeros(1, 1, network.config.decoder_config.num_channels, dtype=torch.long)
    with torch.inference_mode():
        step(rows, None)
        step(rows, None)
    assert len(read) >= 3
    assert all(one() is not None for one in read)


def test_the_cpu_takes_the_plain_step(published: Path) -> None:
    voice = DiaPipeline.load(published, device="cpu")
    source = voice.engine.network.read([torch.tensor([5, 6])], None)
    step = steps.make_step(voice.engine.network, source, voice.config.sampling, guided=False, rows=9)
    assert type(step) is steps.Step
