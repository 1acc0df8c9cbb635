"""Texts in slots draw the ids that they draw by themselves, whenever they join and leave; on both sides."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.sides import BY_PACKAGE, Side
from tests.tiny.mars5_ar import VOCABULARY, deep_prompt, reference
from tests.tiny.mars5_draws import extend
from tests.tiny.networks import ar_config, tiny
from tts_core.mars5.config import CodecLMConfig
from tts_core.mars5.inputs import CodecSequence, Mars5Inputs
from tts_core.mars5.options import Mars5Options
from tts_core.nn.noise import HostNoise

pytestmark = pytest.mark.rest

EVERY_SIDE = pytest.mark.parametrize("side", BY_PACKAGE.values(), ids=BY_PACKAGE)
CONFIG, NARROW = ar_config(), ar_config(sliding_window=54)  # wide enough for every prompt
ROOM = 90
SETTINGS = [
    Mars5Options(),
    Mars5Options(temperature=1.2, top_k=0, top_p=1.0),
    Mars5Options(temperature=1.1, top_k=60, top_p=0.9, typical_p=0.8, rep_penalty_window=9),
    Mars5Options(temperature=0.0, freq_penalty=0.5, rep_penalty_window=200),
]


@cache
def network(side: Side, config: CodecLMConfig) -> Any:
    return side.network("mars5", tiny(config, seed=3))


@dataclass
class Text:
    """A text, and the ids that it draws."""

    seed: int
    joining: Mars5Inputs
    drawn: list[int] = field(default_factory=list)

    @property
    def limit(self) -> int:
        """Most new ids: it ends after them."""
        return self.joining.room


def text(seed: int) -> Text:
    """A shallow or a deep clone with room for some ids."""
    random = np.random.default_rng(seed)
    codes = reference(int(random.integers(1, 25)), CONFIG, seed)
    words = "".join(random.choice(list("thenisro "), int(random.integers(1, 20))))
    prompt = deep_prompt(codes) if random.random() < 0.4 else VOCABULARY.shallow(words)
    settings = SETTINGS[int(random.choice(4, p=[0.5, 0.2, 0.2, 0.1]))]
    most = len(prompt.tokens) + int(random.integers(1, 30))
    options = replace(settings, generate_max_len_override=most)
    return Text(seed, Mars5Inputs(prompt, codes, options, HostNoise(2**63 + seed)))


@cache
def alone(side: Side, config: CodecLMConfig, seed: int) -> list[int]:
    """Ids of slots that no other text has been in, the end included."""
    given = text(seed).joining
    sequence = CodecSequence(given.prompt, VOCABULARY, given.options.max_len)
    for _ in extend(side, network(side, config), given.codes, sequence, given.options, given.noise):
        pass
    return [*sequence.generated, *[VOCABULARY.end] * sequence.ended]


def slots_of(side: Side, config: CodecLMConfig, count: int) -> Any:
    make = side.module("mars5.decoder").make_slots
    return make(
        network(side, config), texts=count, capacity=ROOM, lowest=VOCABULARY.lowest, end=VOCABULARY.end
    )


def come_and_go(slots: Any, texts: list[Text], seed: int) -> list[Text]:
    """Let the texts join at random times and leave at their ends; some leave early, for good.

    Returns those that ended.
    """
    random, waiting, running, ended = np.random.default_rng(seed), list(texts), dict[int, Text](), []
    while waiting or running:
        for slot in range(slots.rows.slots):
            if slot not in running and waiting and random.random() < 0.5:
                running[slot] = waiting.pop(0)
                slots.join({slot: running[slot].joining})
        if not running:
            continue
        drawn = slots.read(slots.launch(int(random.integers(1, 5))))
        for slot, one in list(running.items()):
            one.drawn += drawn[:, slot].tolist()
            if VOCABULARY.end in one.drawn:
                one.drawn = one.drawn[: one.drawn.index(VOCABULARY.end) + 1]
                done = True
            else:
                done = len(one.drawn) >= one.limit
            if done or random.random() < 0.02:
                slots.leave(slot)
                del running[slot]
            if done:
                ended.append(one)
    return ended


@EVERY_SIDE
@pytest.mark.parametrize("config", [CONFIG, NARROW], ids=["window 3000", "window 54"])
@pytest.mark.parametrize("count", [1, 4])
def test_texts_come_and_go(
    side: Side, count: int, config: CodecLMConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other prompts, clones, settings and lengths in each slot, whose keys grow by a few positions at a time,
    and never beyond the window; a cancelled text leaves no trace.
    """
    monkeypatch.setattr(f"{side.package}.batch.CHUNK", 5)
    slots, most = slots_of(side, config, count), min(ROOM, config.sliding_window)
    launch, sizes = slots.launch, set[int]()

    def watched(steps: int) -> Any:
        sizes.add(slots.caches[0].keys.shape[2])
        return launch(steps)

    monkeypatch.setattr(slots, "launch", watched)
    ended = come_and_go(slots, [text(seed) for seed in range(24)], seed=count)
    assert len(ended) > 14
    assert max(sizes) <= most
    assert len(sizes) > 5 or slots.decoder.reserves
    assert not slots.caches or slots.decoder.reserves
    assert max(one.joining.options.max_len for one in ended) > NARROW.sliding_window + 10
    for one in ended:
        assert one.drawn[: one.limit] == alone(side, config, one.seed)


@EVERY_SIDE
def test_a_text_without_finite_logits_is_marked_by_itself(side: Side) -> None:
    weights = tiny(CONFIG, seed=3)
    weights.tensors["embed.weight"][VOCABULARY.shallow("x").tokens[1]] = np.nan
    broken, one = side.network("mars5", weights), text(4)
    slots = side.module("mars5.decoder").make_slots(
        broken, texts=2, capacity=ROOM, lowest=VOCABULARY.lowest, end=VOCABULARY.end
    )
    slots.join({0: Mars5Inputs(VOCABULARY.shallow("x"), one.joining.codes, Mars5Options(), HostNoise(1))})
    slots.join({1: one.joining})
    drawn = slots.read(slots.launch(3))
    assert drawn[:, 0].tolist() == [-1] * 3
    assert one.limit > 3
    assert drawn[:, 1].tolist() == alone(side, CONFIG, one.seed)[:3]
