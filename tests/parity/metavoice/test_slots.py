"""Texts in slots draw the ids that they draw by themselves, whenever they join and leave; on both sides."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.tiny.metavoice import tokenizers
from tests.tiny.metavoice_lm import LanguageSide
from tests.tiny.networks import tiny
from tts_core.metavoice.config import END_OF_AUDIO
from tts_core.metavoice.inputs import FirstStageSampling, MetaVoiceInputs
from tts_core.nn.noise import HostNoise

pytestmark = pytest.mark.rest

LANGUAGE = {"torch_ref": LanguageSide("torch"), "mlx_port": LanguageSide("mlx")}
EVERY_SIDE = pytest.mark.parametrize("side", LANGUAGE.values(), ids=LANGUAGE)
END_OF_TEXT = tokenizers().first_stage.end_of_text
SAMPLINGS = [
    FirstStageSampling(),
    FirstStageSampling(cfg_scale=1.0, top_p=0.9),
    FirstStageSampling(top_p=None, top_k=1),
    FirstStageSampling(2.5, 1.5, 0.9, 0.9, rule="slow"),
]
ROOM = 59


@cache
def network(side: LanguageSide) -> Any:
    return side.first_stage(tiny("metavoice"))


@dataclass
class Text:
    """A text, and the ids that it draws. limit: of new ids; it ends after them."""

    ids: np.ndarray
    vector: np.ndarray
    limit: int
    sampling: FirstStageSampling
    seed: int
    drawn: list[int] = field(default_factory=list)

    @property
    def joining(self) -> MetaVoiceInputs:
        return MetaVoiceInputs(self.ids, self.vector, self.sampling, HostNoise(self.seed))


def text(seed: int) -> Text:
    random = np.random.default_rng(seed)
    words = random.integers(END_OF_AUDIO + 1, END_OF_TEXT, int(random.integers(0, 20)))
    ids = np.append(words, END_OF_TEXT).astype(np.int32)
    vector = random.normal(0, 1, 10).astype(np.float32)
    sampling = SAMPLINGS[int(random.choice(4, p=[0.5, 0.2, 0.1, 0.2]))]
    return Text(ids, vector, int(random.integers(1, ROOM - len(ids))), sampling, seed)


@cache
def alone(side: LanguageSide, seed: int) -> list[int]:
    """Ids of a text by itself, without slots, until its limit: no id ends it."""
    one = text(seed)
    return side.alone(network(side), one.joining, count=one.limit, end_of_text=END_OF_TEXT)


def slots_of(side: LanguageSide, count: int) -> Any:
    make = side.module("metavoice.decoder").make_slots
    return make(network(side), texts=count, room=ROOM, end_of_text=END_OF_TEXT)


def come_and_go(slots: Any, texts: list[Text], seed: int) -> list[Text]:
    """Let the texts join at random times and leave at their limits; some leave early, for good.

    Returns those that ended.
    """
    random, waiting, running, ended = np.random.default_rng(seed), list(texts), dict[int, Text](), []
    while waiting or running:
        for slot in range(slots.plan.slots):
            if slot in running or not waiting or random.random() < 0.5:
                continue
            running[slot] = waiting.pop(0)
            slots.join({slot: running[slot].joining})
        if not running:
            continue
        drawn = slots.read(slots.launch(int(random.integers(1, 5))))
        for slot, one in list(running.items()):
            one.drawn += drawn[:, slot].tolist()
            cancelled = random.random() < 0.02
            if len(one.drawn) >= one.limit or cancelled:
                slots.leave(slot)
                del running[slot]
            if len(one.drawn) >= one.limit:
                ended.append(one)
    return ended


@EVERY_SIDE
@pytest.mark.parametrize(("count", "texts"), [(1, 30), (6, 30), pytest.param(8, 400, marks=pytest.mark.slow)])
def test_texts_come_and_go(side: LanguageSide, count: int, texts: int) -> None:
    """Other lengths, speakers, samplings and guidance in each slot; a cancelled text leaves no trace.

    Near-ties: none of 29,154 draws of 1,265 texts differed.
    """
    asked = [text(seed) for seed in range(texts)]
    ended = come_and_go(slots_of(side, count), asked, seed=count)
    assert len(ended) > 0.6 * texts
    for one in ended:
        assert one.drawn[: one.limit] == alone(side, one.seed)


@EVERY_SIDE
def test_a_text_stays_in_its_rows(side: LanguageSide) -> None:
    """Steps past its last position write nothing elsewhere, and another text may follow in its rows."""
    slots, long, short = slots_of(side, 2), text(3), text(5)
    slots.join({0: long.joining})
    slots.join({1: short.joining})
    drawn = slots.read(slots.launch(80))
    for slot, one in enumerate((long, short)):
        assert drawn[: one.limit, slot].tolist() == alone(side, one.seed)
    slots.leave(1)
    follower = text(8)
    slots.join({1: follower.joining})
    assert slots.read(slots.launch(follower.limit))[:, 1].tolist() == alone(side, follower.seed)


@EVERY_SIDE
def test_a_text_without_finite_logits_is_marked_by_itself(side: LanguageSide) -> None:
    slots, one, other = slots_of(side, 2), text(3), text(5)
    slots.join({0: other.joining})
    slots.join({1: MetaVoiceInputs(one.ids, one.vector * np.float32(np.nan), SAMPLINGS[0], HostNoise(1))})
    drawn = slots.read(slots.launch(4))
    assert drawn[:, 1].tolist() == [-1] * 4
    assert drawn[:, 0].tolist() == alone(side, other.seed)[:4]
