"""The codec in every model's plan: beside the steps where the device runs it there, else after them."""

from __future__ import annotations

from importlib import import_module

import pytest

from tts_core import models
from tts_core.memory.machine import Machine
from tts_core.memory.terms import BACKENDS, OVERLAPS, Estimate, Phase

# phases that compute what the codec decodes, and the codec's own
STEPS = {
    "dia": (["decoder"], "codec"),
    "dia2": (["steps"], "codec"),
    "mars5": (["AR", "NAR"], "vocoder"),
    "metavoice": (["first stage", "second stage"], "decoder"),
    "qwen3": (["prompt", "steps"], "codec"),
}


def plan(model: str, backend: str) -> Estimate:
    """Estimate the longest run of the model's first published size."""
    outlook, configs = (
        import_module(f"tts_core.{model}.outlook"),
        next(iter(models.MODELS[model].sizes.values())),
    )
    job = outlook.plan(configs, None, None, 1)
    return outlook.estimate(configs, job, Machine("bfloat16", backend))


def named(estimate: Estimate) -> dict[str, Phase]:
    return {phase.name: phase for phase in estimate.phases}


@pytest.mark.parametrize("model", models.NAMES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_the_codec_is_beside_the_steps_or_after_them(
    model: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, (steps, sound) = named(plan(model, backend)), STEPS[model]
    monkeypatch.setattr("tts_core.memory.terms.OVERLAPS", ())
    after = named(plan(model, backend))
    if backend not in OVERLAPS:
        assert made == after
        return
    assert after.keys() - made.keys() == {sound}
    for name in steps:
        own = [term for term in after[sound].terms if term not in after[name].terms]
        assert own
        assert made[name].bytes == after[name].bytes + sum(term.bytes for term in own)
