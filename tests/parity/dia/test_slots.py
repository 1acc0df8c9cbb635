"""Rows and memory of a running batch as texts join and leave; tests/contract has the speech of all models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from mlx_port.batch import RunningBatch
from mlx_port.dia.decoder import make_slots
from mlx_port.steps.row_keys import SharedCache
from tests.sides import PORT, YARDSTICK, Side
from tests.tiny.dia import compose
from tests.tiny.dia_draws import draws
from tests.tiny.networks import SAMPLING, dia_config, tiny
from torch_ref.cpu.dia import decoder as few
from torch_ref.dia import decoder as plain
from tts_core.dia.grid import DelayGrid, DiaInputs
from tts_core.dia.options import DiaSampling
from tts_core.nn.noise import HostNoise, Noise

pytestmark = pytest.mark.rest

FORMS: dict[str, Callable[..., Any]] = {
    "mlx": make_slots,
    "torch": plain.make_slots,
    "few rows": few.make_slots,
}


@dataclass
class Text:
    """A text, and what it draws by."""

    tokens: np.ndarray
    prompt: np.ndarray | None
    frames: int
    sampling: DiaSampling
    noise: Noise

    @property
    def grid(self) -> DelayGrid:
        return DelayGrid(dia_config(), self.prompt, self.frames)

    @property
    def inputs(self) -> DiaInputs:
        return DiaInputs.of(self.grid, self.tokens, self.sampling, self.noise)


def text(seed: int, *, sampling: DiaSampling = SAMPLING) -> Text:
    random = np.random.default_rng(seed)
    tokens = random.integers(1, 200, int(random.integers(1, 30))).astype(np.int32)
    prompt = random.integers(0, 60, (4, int(random.integers(1, 9)))).astype(np.int32)
    frames = int(random.integers(5, 40))
    return Text(tokens, prompt if seed % 3 == 0 else None, frames, sampling, HostNoise(seed))


@cache
def network(side: Side) -> Any:
    return side.network("dia", tiny("dia", seed=3))


def plainly(one: Text) -> np.ndarray:
    """Draws of a text by torch's plain loop, until its grid is done. (rows, C)."""
    return draws(network(YARDSTICK), one.tokens, one.grid, one.sampling, one.noise)


def slots_of(count: int, form: str = "mlx") -> Any:
    built = network(PORT if form == "mlx" else YARDSTICK)
    return FORMS[form](built, built.encode_empty(), texts=count, capacity=80)


@pytest.mark.parametrize("form", FORMS)
@torch.inference_mode()
def test_unconditional_rows_come_and_go_with_their_texts(form: str) -> None:
    """A text without guidance has one row, alone or beside those that have two."""
    bare = replace(SAMPLING, cfg_scale=0.0)
    texts = [text(1, sampling=bare), text(3), text(4, sampling=bare)]
    slots, drawn = slots_of(3, form), {slot: list[np.ndarray]() for slot in range(3)}

    def run(steps: int) -> list[int]:
        rows = slots.read(slots.launch(steps))
        for slot in slots.rows.texts:
            drawn[slot].extend(rows[:, slot])
        return [len(cache.keys) for cache in slots.caches]

    slots.join({0: texts[0].inputs})
    assert set(run(2)) == {1}
    slots.join({1: texts[1].inputs})
    assert set(run(2)) == {4}
    slots.join({2: texts[2].inputs})
    assert set(run(2)) == {6}
    slots.leave(1)
    run(2)
    for slot, one in enumerate(texts):
        found = np.stack(drawn[slot])
        expected = plainly(one)[: len(found)]
        np.testing.assert_array_equal(found[: len(expected)], expected)


@pytest.mark.parametrize("form", FORMS)
@torch.inference_mode()
def test_memory_follows_the_longest_text(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is given back when that one leaves, and all of it with the last."""
    for side in ("mlx_port", "torch_ref"):
        monkeypatch.setattr(f"{side}.batch.CHUNK", 8)
    short, long, slots = text(1), text(3), slots_of(2, form)
    long.prompt, long.tokens = np.zeros((4, 20), np.int32), np.arange(1, 36).astype(np.int32)
    slots.join({0: short.inputs})
    slots.join({1: long.inputs})
    drawn = [slots.read(slots.launch(2))[:, 0]]
    assert [cache.keys.shape[2] for cache in slots.caches] == [24] * len(slots.caches)
    slots.leave(1)
    drawn.append(slots.read(slots.launch(5))[:, 0])
    assert [cache.keys.shape[2] for cache in slots.caches] == [8] * len(slots.caches)
    assert {each.shape[2] for each in (*slots.state.keys, *slots.state.values)} == {len(short.tokens)}
    np.testing.assert_array_equal(np.concatenate(drawn), plainly(short)[:7])
    slots.leave(0)
    assert slots.caches == []


def test_a_text_that_does_not_fit_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory that is short while its rows are taken over: its slot stays free."""
    one, other, slots = text(3), text(4), slots_of(2)
    slots.join({0: one.inputs})
    with monkeypatch.context() as patch:
        patch.setattr(SharedCache, "fill", raising(MemoryError("none is left")))
        with pytest.raises(MemoryError, match="none is left"):
            slots.join({1: other.inputs})
    assert slots.rows.texts.keys() == {0}
    slots.join({1: other.inputs})
    drawn = slots.read(slots.launch(60))
    for slot, each in enumerate((one, other)):
        expected = plainly(each)
        np.testing.assert_array_equal(drawn[: len(expected), slot], expected)


def raising(error: Exception) -> Any:
    def fail(*_: Any) -> None:
        raise error

    return fail


def test_unused_memory_is_freed_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    freed: list[int] = []
    one, slots = text(2), slots_of(1)
    monkeypatch.setattr("mlx_port.batch.STEPS_BETWEEN", 5)
    monkeypatch.setattr("mlx.core.clear_cache", lambda: freed.append(slots.ticks))
    slots.join({0: one.inputs})
    slots.read(slots.launch(12))
    assert freed == [5, 10]


def test_a_step_is_submitted_before_the_last_ones_draws_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Launch, launch, read, launch, read."""
    done: list[str] = []
    launch, read = RunningBatch.launch, RunningBatch.read
    monkeypatch.setattr(
        RunningBatch, "launch", lambda self, steps: done.append("launch") or launch(self, steps)
    )
    monkeypatch.setattr(RunningBatch, "read", lambda self, rows: done.append("read") or read(self, rows))
    voice = compose(PORT, tiny("dia", seed=3, eos=0.0), tiny("dac"))
    voice.generate_codes(["[S1] One."], max_frames=4, seed=1)
    assert done[:5] == ["launch", "launch", "read", "launch", "read"]
    assert done.count("launch") == done.count("read") + 1
