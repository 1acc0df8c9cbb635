"""The compiled decoder step draws what the plain one draws, also where its buffers grow."""

import mlx.core as mx
import numpy as np
import pytest

import mlx_port.dia.step as steps
from mlx_port import load
from mlx_port.dia.generate import DiaPipeline
from tts_core.results import Prompt

TEXTS = ["[S1] One, two.", "[S2] a"]
PROMPTS = [Prompt("[S1] Before.", codes=np.arange(36, dtype=np.int32).reshape(4, 9)), None]


@pytest.fixture
def voice(converted) -> DiaPipeline:
    return load(converted)


@pytest.mark.parametrize("settings", [{}, {"temperature": 0.0}, {"cfg_scale": 0.0}], ids=str)
def test_compiled_step(voice: DiaPipeline, settings: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a capacity of 4 rows the buffers double three times within the run."""
    plain = voice.generate_codes(TEXTS, PROMPTS, seed=4, max_frames=14, **settings)
    made: list[steps.CompiledStep] = []

    class Noted(steps.CompiledStep):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            made.append(self)

    monkeypatch.setattr(steps, "FIRST_CAPACITY", 4)
    monkeypatch.setattr("mlx_port.dia.generate.make_step", Noted)
    compiled = voice.generate_codes(TEXTS, PROMPTS, seed=4, max_frames=14, **settings)
    for one, two in zip(compiled, plain, strict=True):
        np.testing.assert_array_equal(one, two)
    [step] = made
    assert step.capacity == 32
    assert step.buffers[0][0].shape[2] == 32


def test_the_cpu_takes_the_plain_step(voice: DiaPipeline) -> None:
    source = voice.network.read([mx.array([5, 6])], None)
    step = steps.make_step(voice.network, source, voice.config.sampling, guided=False)
    assert type(step) is (steps.Step if mx.default_device() == mx.cpu else steps.CompiledStep)
