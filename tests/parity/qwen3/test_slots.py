"""Texts in slots draw the frames that they draw by themselves, whenever they join and leave: both sides."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.sides import SIDES, Side
from tests.tiny.networks import qwen3_config, tiny
from tts_core.nn.noise import HostNoise
from tts_core.qwen3.layout import Qwen3Choice, Qwen3Inputs, Qwen3Sampling, build
from tts_core.speaking.running import WAITED

pytestmark = pytest.mark.rest

CONFIG = qwen3_config()
SAMPLINGS = (
    Qwen3Sampling(),
    Qwen3Sampling(Qwen3Choice(top_k=0, top_p=0.9), Qwen3Choice(temperature=1.3), 1.0),
    Qwen3Sampling(Qwen3Choice(is_greedy=True), Qwen3Choice(), 1.2),
    Qwen3Sampling(Qwen3Choice(), Qwen3Choice(is_greedy=True)),
)
ROOM = 100


@cache
def network(side: str) -> Any:
    return Side(side).network("qwen3", tiny(CONFIG))


@dataclass
class Text:
    """A text, and the frames that it draws until its limit."""

    seed: int
    limit: int
    joining: Qwen3Inputs
    drawn: list[np.ndarray] = field(default_factory=list)


def text(seed: int) -> Text:
    random = np.random.default_rng(seed)
    ids = random.integers(0, 256, int(random.integers(9, 25))).tolist()
    layout = build(CONFIG, ids, language=None, streamed=bool(random.integers(2)))
    sampling = SAMPLINGS[int(random.integers(len(SAMPLINGS)))]
    return Text(seed, int(random.integers(1, 12)), Qwen3Inputs(layout, sampling, HostNoise(seed)))


def slots_of(side: str, count: int) -> Any:
    return Side(side).module("qwen3.decoder").make_slots(network(side), texts=count, room=ROOM)


def read(slots: Any) -> np.ndarray:
    [drawn] = slots.read(slots.launch(1))
    return drawn


@cache
def alone(side: str, seed: int) -> np.ndarray:
    """Frames of a text by itself; nothing ends it before its limit."""
    one, slots = text(seed), slots_of(side, 1)
    slots.join({0: one.joining})
    return np.stack([read(slots)[0] for _ in range(one.limit)])


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("count", [2, 5])
def test_texts_come_and_go(side: str, count: int) -> None:
    """Other lengths, layouts and samplings in each slot."""
    random, slots = np.random.default_rng(count), slots_of(side, count)
    waiting, running = [text(seed) for seed in range(12)], dict[int, Text]()
    while waiting or running:
        for slot in range(count):
            if slot not in running and waiting and random.random() < 0.5:
                running[slot] = waiting.pop(0)
                slots.join({slot: running[slot].joining})
        if not running:
            continue
        drawn = read(slots)
        for slot, one in list(running.items()):
            one.drawn.append(drawn[slot])
            if len(one.drawn) == one.limit:
                np.testing.assert_array_equal(np.stack(one.drawn), alone(side, one.seed))
                slots.leave(slot)
                del running[slot]
    assert not slots.caches


def test_both_sides_draw_the_same() -> None:
    for seed in range(6):
        np.testing.assert_array_equal(alone("torch", seed), alone("mlx", seed))


@pytest.mark.parametrize("side", SIDES)
def test_a_text_that_is_fed_waits_and_draws_the_same(side: str) -> None:
    """It waits for each id beside a text that draws on; at the end of its text padding follows."""
    whole, other = text(3), text(4)
    ids, room = [*range(40, 48)], 3
    laid = replace(whole.joining.layout, trailing=tuple(ids))
    frames = len(ids) + 4
    slots = slots_of(side, 1)
    slots.join({0: replace(whole.joining, layout=laid)})
    expected = np.stack([read(slots)[0] for _ in range(frames)])
    alone_there = slots_of(side, 1)
    alone_there.join({0: other.joining})

    slots = slots_of(side, 3)
    slots.join({0: replace(whole.joining, layout=replace(laid, trailing=tuple(ids[:room])), more=True)})
    slots.join({2: other.joining})
    drawn, random = list[np.ndarray](), np.random.default_rng(0)
    fed = room
    for _ in range(40):
        codes = read(slots)
        np.testing.assert_array_equal(codes[2], read(alone_there)[0])
        if codes[0, 0] == WAITED:
            assert len(drawn) > fed
            new = ids[fed : fed + int(random.integers(0, 3))]
            fed += len(new)
            slots.feed(0, new, more=fed < len(ids))
        else:
            drawn.append(codes[0])
    assert fed == len(ids)
    np.testing.assert_array_equal(np.stack(drawn[:frames]), expected)
    assert all(not text.inputs.waits(text) for text in slots.plan.texts.values())
