"""A changed tokenizer file is one clear error, or a tokenizer that works."""

from __future__ import annotations

import json
import random

import pytest

from tests.fuzz import made
from tests.tiny.metavoice import tokenizers
from tests.tiny.published_models import AR, header
from tts_core.mars5.tokens import SPEECH_FILE, TEXT_FILE, SpeechTokenizer, TextTokenizer
from tts_core.metavoice.text import read_tokenizers

pytestmark = pytest.mark.rest

TEXT, CODES = "hello there", [5, 7] * 10
DOCUMENTS = {
    kind: {"tokenizer.json": json.dumps(getattr(tokenizers(), stage).to_dict())}
    for kind, stage in (("metavoice", "first_stage"), ("metavoice_second_stage", "second_stage"))
}


@made.cases(400, 40_000)
@pytest.mark.parametrize("file", [TEXT_FILE, SPEECH_FILE])
def test_mars5(file: str, seeds: range) -> None:
    whole, read = header(AR)[file].encode(), 0
    for seed in seeds:
        content = made.changed_bytes(random.Random(seed), whole).decode("utf-8", "replace")
        with made.clear(seed, content):
            if file == TEXT_FILE:
                text = TextTokenizer(content)
                assert len(text.decode(text.encode(TEXT))) >= 1
            else:
                speech = SpeechTokenizer(content)
                assert len(speech.decode(speech.encode(CODES))) >= 1
            read += 1
    assert 0 < read < len(seeds)


@made.cases(300, 30_000)
def test_metavoice(seeds: range) -> None:
    read = 0
    for seed in seeds:
        chance = random.Random(seed)
        documents = {kind: dict(held) for kind, held in DOCUMENTS.items()}
        held = documents[chance.choice(list(documents))]
        content = held["tokenizer.json"]
        if chance.random() < 0.7:
            held["tokenizer.json"] = json.dumps(made.changed_json(chance, json.loads(content)))
        else:
            held["tokenizer.json"] = made.changed_bytes(chance, content.encode()).decode("utf-8", "replace")
        with made.clear(seed, held):
            table = read_tokenizers(documents).first_stage
            assert table.decode(table.encode(TEXT)[:-1]) == TEXT
            read += 1
    assert 0 < read < len(seeds)
