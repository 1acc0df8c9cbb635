"""Running batches draw the ids of torch's plain runs, whenever texts join and leave."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from mlx_port.batch import RunningBatch
from mlx_port.dia.decoder import make_slots
from mlx_port.steps.row_keys import JoinedCache
from tests.parity.dia.near_ties import nearest
from tests.sides import ORACLE, PORT, YARDSTICK
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
    """A text, and the draws of its grid."""

    tokens: np.ndarray
    prompt: np.ndarray | None
    frames: int
    sampling: DiaSampling
    noise: Noise
    drawn: list[np.ndarray] = field(default_factory=list)

    def grid(self) -> DelayGrid:
        return DelayGrid(dia_config(), self.prompt, self.frames)

    def inputs(self, grid: DelayGrid) -> DiaInputs:
        return DiaInputs.of(grid, self.tokens, self.sampling, self.noise)


def text(seed: int, *, sampling: DiaSampling = SAMPLING) -> Text:
    random = np.random.default_rng(seed)
    tokens = random.integers(1, 200, int(random.integers(1, 30))).astype(np.int32)
    prompt = random.integers(0, 60, (4, int(random.integers(1, 9)))).astype(np.int32)
    return Text(
        tokens, prompt if seed % 3 == 0 else None, int(random.integers(5, 40)), sampling, HostNoise(seed)
    )


@cache
def network(kind: str, cross_rope: bool = False):
    side = {"torch": YARDSTICK, "mlx": PORT, "float64": ORACLE}[kind]
    return side.network("dia", tiny(dia_config(cross_rope=cross_rope), seed=3))


def plainly(one: Text, *, cross_rope: bool = False) -> np.ndarray:
    """Draws of a text by torch's plain loop, until its grid is done. (rows, C)."""
    return draws(network("torch", cross_rope), one.tokens, one.grid(), one.sampling, one.noise)


def slots_of(
    count: int, *, guided: bool = True, rows: int = 80, cross_rope: bool = False, form: str = "mlx"
) -> Any:
    """Open a running batch. form: also of torch, plain or on a CPU."""
    built = network("mlx" if form == "mlx" else "torch", cross_rope)
    nothing = built.encode_nothing() if guided else None
    return FORMS[form](built, nothing, texts=count, room=rows)


@pytest.mark.parametrize("cross_rope", [False, True])
@pytest.mark.parametrize(
    "settings", [{}, {"temperature": 0.0}, {"cfg_scale": 0.0}, {"top_k": 0, "top_p": 1.0}], ids=str
)
@pytest.mark.parametrize("count", [1, 5])
def test_draws_are_the_plain_ones(count: int, settings: dict, cross_rope: bool) -> None:
    sampling = replace(SAMPLING, **settings)
    texts = [text(seed, sampling=sampling) for seed in range(count)]
    slots = slots_of(count, guided=sampling.cfg_scale != 0, cross_rope=cross_rope)
    for slot, one in enumerate(texts):
        slots.join({slot: one.inputs(one.grid())})
    drawn = np.concatenate([slots.read(slots.launch(7)) for _ in range(10)])
    for slot, one in enumerate(texts):
        expected = plainly(one, cross_rope=cross_rope)
        np.testing.assert_array_equal(drawn[: len(expected), slot], expected)


def arrivals(slots: Any, texts: list[Text], seed: int) -> Iterator[Text]:
    """Texts in random order of time: each joins a free slot and leaves when its grid is done."""
    random, waiting, running = np.random.default_rng(seed), list(texts), {}
    while waiting or running:
        for slot in range(slots.plan.slots):
            if slot not in running and waiting and random.random() < 0.5:
                one = waiting.pop(0)
                running[slot] = one, one.grid()
                slots.join({slot: one.inputs(running[slot][1])})
        if not running:
            continue
        rows = slots.read(slots.launch(int(random.integers(1, 6))))
        for slot, (one, grid) in list(running.items()):
            for ids in rows[:, slot]:
                if not grid.done:
                    one.drawn.append(ids)
                    grid.accept(ids)
            if grid.done:
                slots.leave(slot)
                del running[slot]
                yield one


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("count", [1, 3, 8])
@torch.inference_mode()
def test_texts_come_and_go(count: int, form: str) -> None:
    """Other lengths, prompts, settings and noise in each slot."""
    texts = [text(seed) for seed in range(15)]
    for place in (1, 4, 7):
        texts[place].sampling = DiaSampling(cfg_scale=1.5, temperature=0.7, top_p=1.0, top_k=5)
    texts[10].sampling = DiaSampling(cfg_scale=0.0, temperature=0.0, top_p=1.0, top_k=5)
    finished = list(arrivals(slots_of(count, form=form), texts, seed=count))
    assert len(finished) == len(texts)
    for one in texts:
        np.testing.assert_array_equal(np.stack(one.drawn), plainly(one))


def test_a_row_does_not_depend_on_the_batch() -> None:
    """Rows of the same history, drawn in a batch and one by one, are equal but for explained near-ties."""
    texts, rows = 8, 121
    random = np.random.default_rng(6)
    tokens = [random.integers(1, 200, int(random.integers(1, 40))).astype(np.int32) for _ in range(texts)]
    forced = random.integers(0, 60, (texts, rows, 4)).astype(np.int32)

    def drawn(members: list[int]) -> np.ndarray:
        slots = slots_of(len(members), rows=rows)
        for slot, one in enumerate(members):
            slots.join({slot: DiaInputs(tokens[one], forced[one], 1, 0, rows, SAMPLING, HostNoise(one))})
        return slots.read(slots.launch(rows - 1))

    together = drawn(list(range(texts)))
    single = np.concatenate([drawn([one]) for one in range(texts)], axis=1)
    differing = np.argwhere(together != single)
    assert len(differing) <= 4  # of 3,840 draws
    built = network("float64")
    for row, one, channel in differing:
        known = torch.from_numpy(forced[one : one + 1, : row + 1])
        source = built.read([torch.from_numpy(tokens[one])], built.encode_nothing())
        cond, uncond = built.next_logits(torch.cat([known, known]), built.new_cache(), source).numpy()
        uniform = HostNoise(int(one)).uniform(int(row), cond.shape)
        ids = int(together[row, one, channel]), int(single[row, one, channel])
        assert nearest(cond, uncond, uniform, int(channel), ids, SAMPLING, 60, 1e-5).explained


def test_steps_past_the_end_stay_in_the_grid() -> None:
    """Nothing is written out of bounds, and another text may join."""
    one, other, slots = text(2), text(5), slots_of(2, rows=60)
    slots.join({0: other.inputs(other.grid())})
    slots.read(slots.launch(70))
    slots.join({1: one.inputs(one.grid())})
    expected = plainly(one)
    np.testing.assert_array_equal(slots.read(slots.launch(58))[: len(expected), 1], expected)
    assert slots.plan.positions().max() == 58


@pytest.mark.parametrize("form", FORMS)
@torch.inference_mode()
def test_unconditional_rows_come_and_go_with_their_texts(form: str) -> None:
    """A text without guidance has one row, alone or beside those that have two."""
    bare = replace(SAMPLING, cfg_scale=0.0)
    texts = [text(1, sampling=bare), text(3), text(4, sampling=bare)]
    slots, drawn = slots_of(3, form=form), {slot: list[np.ndarray]() for slot in range(3)}

    def run(steps: int) -> list[int]:
        rows = slots.read(slots.launch(steps))
        for slot in slots.plan.texts:
            drawn[slot].extend(rows[:, slot])
        return [len(cache.keys) for cache in slots.caches]

    slots.join({0: texts[0].inputs(texts[0].grid())})
    assert set(run(2)) == {1}
    slots.join({1: texts[1].inputs(texts[1].grid())})
    assert set(run(2)) == {4}
    slots.join({2: texts[2].inputs(texts[2].grid())})
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
    short, long, slots = text(1), text(3), slots_of(2, form=form)
    long.prompt, long.tokens = np.zeros((4, 20), np.int32), np.arange(1, 36).astype(np.int32)
    slots.join({0: short.inputs(short.grid())})
    slots.join({1: long.inputs(long.grid())})
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
    slots.join({0: one.inputs(one.grid())})
    with monkeypatch.context() as patch:
        patch.setattr(JoinedCache, "fill", raising(MemoryError("none is left")))
        with pytest.raises(MemoryError, match="none is left"):
            slots.join({1: other.inputs(other.grid())})
    assert slots.plan.texts.keys() == {0}
    slots.join({1: other.inputs(other.grid())})
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
    monkeypatch.setattr("mlx_port.batch.STEPS_KEPT", 5)
    monkeypatch.setattr("mlx.core.clear_cache", lambda: freed.append(slots.ticks))
    slots.join({0: one.inputs(one.grid())})
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
