"""Texts of MetaVoice that come and go in a running batch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.tiny.metavoice import tokenizers
from tts_core.metavoice.config import END_OF_AUDIO
from tts_core.metavoice.inputs import FirstStageSampling, MetaVoiceInputs
from tts_core.nn.noise import HostNoise

END_OF_TEXT = tokenizers().first_stage.end_of_text
SAMPLINGS = [
    FirstStageSampling(),
    FirstStageSampling(cfg_scale=1.0, top_p=0.9),
    FirstStageSampling(top_p=None, top_k=1),
    FirstStageSampling(2.5, 1.5, 0.9, 0.9, rule="slow"),
]
ROOM = 59


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


def come_and_go(slots: Any, texts: list[Text], seed: int) -> list[Text]:
    """Let the texts join at random times and leave at their limits; some leave early, for good.

    Returns those that ended.
    """
    random, waiting, running, ended = np.random.default_rng(seed), list(texts), dict[int, Text](), []
    while waiting or running:
        for slot in range(slots.rows.slots):
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
