"""Texts in captured slots draw the ids of single plain runs, whenever they join, wait and leave."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch

from tests.tiny.noise import GivenNoise
from tests.torch_ref.cuda.dia2.kernel_dia2 import network
from tests.torch_ref.cuda.marks import kernel_marks
from torch_ref.batch import RunningBatch
from torch_ref.cuda.batch import CapturedBatch
from torch_ref.cuda.dia2.decoder import make_slots
from torch_ref.dia2 import decoder as plain
from torch_ref.dia2.dia2 import Dia2
from tts_core.dia2.config import Dia2Config
from tts_core.dia2.inputs import Dia2Choice, Dia2Inputs, Dia2Sampling
from tts_core.dia2.recordings import Prefix
from tts_core.dia2.run import Dia2Run
from tts_core.dia2.script import Entry
from tts_core.nn.noise import HostNoise
from tts_core.speaking.rows import BatchText
from tts_core.speaking.running import WAITED

pytestmark = kernel_marks()

ROWS = 60  # of a prefix and the longest run
SETTINGS = {
    "defaults": Dia2Sampling(Dia2Choice(2.0, 10, 0.6, 50), Dia2Choice(2.0, 10, 0.8, 8)),
    "greedy": Dia2Sampling(Dia2Choice(2.0, 10, 0.0, 50), Dia2Choice(2.0, 10, 0.0, 8)),
    "no guidance": Dia2Sampling(Dia2Choice(1.0, 10, 0.6, 2), Dia2Choice(1.0, 10, 0.8, 0)),
    "few candidates": Dia2Sampling(Dia2Choice(0.3, 1, 0.6, 2), Dia2Choice(0.3, 3, 0.8, 0)),
}


@dataclass(eq=False)
class Talk(Dia2Inputs):
    """A text, and what was drawn for it. rests: takes no part in the next step."""

    actions: list[int] = field(default_factory=list)
    codes: list[np.ndarray] = field(default_factory=list)
    rests: bool = False

    def waits(self, text: BatchText) -> bool:
        return self.rests or super().waits(text)

    def answer(self, action: int) -> tuple[int, int]:
        self.actions.append(action)
        return super().answer(action)


def talk(whole: Dia2Config, seed: int, sampling: Dia2Sampling = SETTINGS["defaults"], **changes: Any) -> Talk:
    """Of some words; every third one continues a voice."""
    random = np.random.default_rng(seed)
    entries = [
        Entry(tuple(random.integers(10, 300, int(random.integers(1, 4))).tolist()), f"w{place}", 2)
        for place in range(6)
    ]
    prefix = None
    if seed % 3 == 0:
        codes = random.integers(0, 33, (whole.n_streams, 7)).astype(np.int32)
        prefix = Prefix(codes, tuple(entries[:2]), frozenset({1, 4}))
    frames = int(random.integers(6, 14))
    run = Dia2Run(whole, entries[2:], prefix=prefix, max_frames=frames)
    return Talk(run, None, sampling, HostNoise(2**64 - 1 - seed), run.warm_up(), **changes)


def plainly(built: Dia2, one: Talk) -> Talk:
    """The same text by itself in plain slots."""
    serve(plain.make_slots(built, texts=1, capacity=ROWS), [one], places=1)
    return one


def serve(slots: Any, talks: list[Talk], *, places: int, seed: int | None = None) -> None:
    """Run all talks; with a seed, they come, wait and leave at random. The codes of a step are read after the
    next one was launched.
    """
    random = np.random.default_rng(seed)
    coming, there = list(talks), dict[int, Talk]()
    before: tuple[Any, dict[int, Talk]] | None = None
    while coming or there or before:
        for slot in range(places):
            if slot not in there and coming and (seed is None or random.random() < 0.4):
                there[slot] = coming.pop(0)
                slots.join({slot: there[slot]})
        for one in there.values():
            one.rests = seed is not None and random.random() < 0.2
        launched = (slots.launch(1), dict(there)) if slots.can_step else None
        if before is not None:
            drawn, texts = slots.read(before[0])[0], before[1]
            for slot, one in texts.items():
                if drawn[slot, 0] != WAITED:
                    one.codes.append(drawn[slot].copy())
                    one.run.accept(drawn[slot])
        before = launched
        for slot, one in list(there.items()):
            gone = seed is not None and random.random() < 0.01
            if one.run.is_done or (gone and one.rests):
                slots.leave(slot)
                del there[slot]


def same(one: Talk, other: Talk) -> None:
    """Equal as far as `one` came."""
    assert one.actions == other.actions[: len(one.actions)]
    if one.codes:
        np.testing.assert_array_equal(np.stack(one.codes), np.stack(other.codes[: len(one.codes)]))


def slots_of(built: Dia2, texts: int, *, guided: bool = True) -> Any:
    batch = make_slots(built, texts=texts, capacity=ROWS, guided=guided)
    assert type(batch) is CapturedBatch
    return batch


@torch.inference_mode()
@pytest.mark.parametrize("rope", [True, False])
@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("count", [1, 3])
def test_draws_are_the_plain_ones(count: int, name: str, rope: bool) -> None:
    built, sampling = network(rope=rope), SETTINGS[name]
    talks = [talk(built.config, seed, sampling) for seed in range(count)]
    serve(slots_of(built, count, guided=sampling.is_guided), talks, places=count)
    for seed, one in enumerate(talks):
        assert one.run.is_done
        same(one, plainly(built, talk(built.config, seed, sampling)))


@torch.inference_mode()
@pytest.mark.parametrize("places", [1, 2, 5])
def test_texts_come_wait_and_leave_without_a_new_capture(places: int) -> None:
    """Settings differ within a batch; free slots and texts that wait leave no trace."""
    built, names = network(), list(SETTINGS)

    def talks() -> list[Talk]:
        made = [talk(built.config, seed, SETTINGS[names[seed % 4]]) for seed in range(4 * places)]
        made[1].noise = GivenNoise(7)
        return made

    slots, served = slots_of(built, places), talks()
    graphs = dict(slots.graphs)
    serve(slots, served, places=places, seed=places)
    assert graphs == slots.graphs
    assert sum(one.run.is_done for one in served) > len(served) // 2
    for one, other in zip(served, talks(), strict=True):
        same(one, plainly(built, other))


@torch.inference_mode()
def test_logits_that_are_not_finite_are_marked() -> None:
    """Those of the text that meets them; its neighbor goes on."""
    built = network()
    bad = talk(built.config, 1)
    with torch.no_grad():
        built.transformer.text_embed.embedding.weight[bad.run.entries[0].tokens[0]] = float("nan")
    good = talk(built.config, 2, SETTINGS["greedy"])
    good.run = Dia2Run(built.config, (), max_frames=8)
    serve(slots_of(built, 2), [bad, good], places=2)
    assert np.stack(bad.codes).min() == -1
    other = talk(built.config, 2, SETTINGS["greedy"])
    other.run = Dia2Run(built.config, (), max_frames=8)
    same(good, plainly(built, other))
    assert np.stack(good.codes).min() >= 0


def test_other_networks_take_the_plain_batch() -> None:
    assert type(make_slots(network().double(), texts=2, capacity=20, guided=True)) is RunningBatch
