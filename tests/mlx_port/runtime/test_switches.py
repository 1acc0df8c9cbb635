"""Settings of the environment: what they change, and that they change no more."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import pytest

import mlx_port
from mlx_port.batch import RunningBatch
from mlx_port.runtime import switches
from tests.contract.speakers import SMALL, TEXTS, every_model, folder
from tts_core.errors import UsageError

pytestmark = pytest.mark.rest


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> set[mx.Dtype]:
    """Types of the keys and values that running batches hold after a launch."""
    found: set[mx.Dtype] = set()
    launch = RunningBatch.launch

    def noted(batch: RunningBatch, steps: int) -> Any:
        launched = launch(batch, steps)
        found.update(one.dtype for cache in batch.caches for one in (cache.keys, cache.values))
        return launched

    monkeypatch.setattr(RunningBatch, "launch", noted)
    return found


def codes(model: str, dtype: Any) -> list[np.ndarray]:
    small = SMALL[model]
    pipeline = mlx_port.load(folder(model), dtype=dtype)
    prompts = None if small.voices[0] is None else [small.voices[0]] * 2
    made = pipeline.generate_batch([*TEXTS[:2]], prompts=prompts, seed=[1, 2], **small.options)
    return [one.codes for one in made]


@every_model
def test_codes_in_float32_are_the_same(
    model: str, monkeypatch: pytest.MonkeyPatch, keys: set[mx.Dtype]
) -> None:
    expected = codes(model, "float32")
    monkeypatch.setenv(switches.KEYS, "float32")
    monkeypatch.setenv(switches.LAUNCHES, "4")
    for one, other in zip(codes(model, "float32"), expected, strict=True):
        np.testing.assert_array_equal(one, other)
    assert keys == {mx.float32}


@every_model
def test_keys_are_float32_in_half_precision(
    model: str, monkeypatch: pytest.MonkeyPatch, keys: set[mx.Dtype]
) -> None:
    codes(model, "bfloat16")
    assert keys == {mx.bfloat16}
    keys.clear()
    monkeypatch.setenv(switches.KEYS, "float32")
    assert all(one.size for one in codes(model, "bfloat16"))
    assert keys == {mx.float32}


@pytest.mark.parametrize(("given", "after"), [("", set()), ("1", set()), ("2", {3}), ("4", {1, 3, 5})])
def test_layers_are_launched_in_parts(monkeypatch: pytest.MonkeyPatch, given: str, after: set[int]) -> None:
    launched: list[int] = []
    monkeypatch.setenv(switches.LAUNCHES, given)
    monkeypatch.setattr(switches.mx, "async_eval", launched.append)
    launch = switches.EarlyLaunch(7)
    for done in range(8):
        launch(done, done)  # type: ignore[arg-type]
    assert {*launched} == after


def test_another_value_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(switches.KEYS, "bfloat16")
    with pytest.raises(UsageError, match="MLX_PORT_KEYS: 'bfloat16' is none of float32; unset it"):
        switches.kind_of_keys(mx.float16)


@pytest.mark.parametrize("name", [switches.KEYS, switches.LAUNCHES])
def test_loading_refuses_another_value_before_it_reads(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "3")
    with pytest.raises(UsageError, match=f"{name}: '3' is none of"):
        mlx_port.load("no folder")
