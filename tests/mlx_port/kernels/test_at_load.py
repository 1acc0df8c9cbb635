"""A loaded model has tried its kernels: its speech tries nothing and compiles no other variant of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

import mlx_port
from benchmarks.quantised_parity import make
from tests.contract.speakers import SMALL, TEXTS, every_model, folder, given, spoken
from tests.mlx_port.kernels.stand_in import StandIn
from tts_core.options import options_class

pytestmark = pytest.mark.rest


@pytest.fixture
def gpu(request: pytest.FixtureRequest) -> Iterator[StandIn]:
    made = StandIn()
    with made.instead(metal=getattr(request, "param", "cuda") == "metal"):
        yield made


on_both = pytest.mark.parametrize("gpu", ["metal", "cuda"], indirect=True)


@every_model
@pytest.mark.parametrize(
    ("gpu", "dtype"),
    [("metal", "float32"), ("metal", "bfloat16"), ("metal", "float16"), ("cuda", "bfloat16")],
    indirect=["gpu"],
)
def test_speech_needs_no_trial_and_no_variant_that_load_had_not(model: str, dtype: Any, gpu: StandIn) -> None:
    pipeline = mlx_port.load(folder(model), dtype=dtype)
    tried, variants = gpu.seen()
    assert {name.rpartition(".")[0] for name, *_ in tried} >= {"mlx_port.kernels.add_norm"}
    arguments = given(model, seed=3)
    pipeline.generate(TEXTS[0], **arguments)
    for settings in SMALL[model].settings:
        pipeline.generate(TEXTS[1], **arguments | dict(settings))
    session, prompt = pipeline.session(4), arguments.pop("prompt")
    options = options_class(model)(**arguments)
    spoken(session, *(pipeline.request(text, options, prompt) for text in TEXTS))
    assert gpu.seen() == (tried, variants)


@on_both
@pytest.mark.parametrize("form", ["8-bit affine", "4-bit affine"])
def test_of_quantized_weights_too(form: str, gpu: StandIn, tmp_path: Path) -> None:
    pipeline, _ = make(form, tmp_path / "voice")
    tried, variants = gpu.seen()
    pipeline.generate_codes(TEXTS[:1], seed=[0], max_frames=3)
    pipeline.generate_codes(TEXTS[:2], seed=[0, 1], max_frames=3)
    assert ("quantized_rows" in {name for name, *_ in variants}) == (not mx.metal.is_available())
    assert gpu.seen() == (tried, variants)


def test_a_trial_in_speech_is_seen(gpu: StandIn) -> None:
    """The tests above can fail: as a process in which nothing is tried, speech tries."""
    pipeline = mlx_port.load(folder("mars5"), dtype="float32")
    gpu.forget()
    gpu.trials.clear()
    pipeline.generate(TEXTS[0], **given("mars5", seed=3))
    assert gpu.trials
