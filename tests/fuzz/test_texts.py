"""Any text becomes a request, or one clear line says why it is not spoken. No network runs."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import numpy as np
import pytest

from converters.published import open_published
from tests.contract.speakers import folder
from tests.fuzz import made
from tts_core.models import MODELS, NAMES
from tts_core.options import options_class
from tts_core.prompt import Prompt
from tts_core.voice.embedded import CODEC, DIA

pytestmark = pytest.mark.rest

VOICE = Prompt.of(audio=0.2 * np.sin(np.arange(24000 * 8) / 20).astype(np.float32), sample_rate=24000)


@cache
def published(model: str) -> Any:
    if model == "dia":
        return open_published([DIA], codec=CODEC, offline=True)
    return open_published([folder(model)], offline=True)


@made.cases(300, 20_000)
@pytest.mark.parametrize("model", NAMES)
def test_texts(model: str, seeds: range) -> None:
    parts = published(model).parts.items()
    configs, documents = (
        {kind: part.config for kind, part in parts},
        {kind: part.documents for kind, part in parts},
    )
    facts, options = MODELS[model].code().facts(configs, documents), options_class(model)()
    spoken = 0
    for seed in seeds:
        text = made.text(random.Random(seed))
        with made.clear(seed, text):
            asked = facts.request(text, options, None if model.startswith("dia") else VOICE)
            assert asked.pieces
            assert 0 < asked.seconds < 60 + len(text)
            spoken += 1
    assert len(seeds) / 10 < spoken < len(seeds)
