"""A changed tokenizer file is one clear error, or a tokenizer that works."""

from __future__ import annotations

import json
import random

import pytest

from tests.fuzz import made
from tests.golden.cases import DEFAULT
from tests.tiny.dia2 import GOLDEN
from tests.tiny.metavoice import tokenizers
from tests.tiny.published_models import AR, header
from tts_core.dia2.tokenizer import FILE as DIA2_FILE
from tts_core.dia2.tokenizer import Dia2Tokenizer
from tts_core.mars5.tokens import SPEECH_FILE, TEXT_FILE, SpeechTokenizer, TextTokenizer
from tts_core.metavoice.text import read_tokenizers
from tts_core.qwen3.tokenizer import FILES, Qwen3Tokenizer

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


@made.cases(300, 30_000)
def test_dia2(seeds: range) -> None:
    whole, read = (GOLDEN / "tokenizer" / DIA2_FILE).read_text("utf-8"), 0
    for seed in seeds:
        content = changed(random.Random(seed), whole)
        with made.clear(seed, content):
            assert all(isinstance(one, int) for one in Dia2Tokenizer(content).encode(TEXT))
            read += 1
    assert 0 < read < len(seeds)


@made.cases(300, 30_000)
def test_qwen3(seeds: range) -> None:
    """One of its three files is changed."""
    whole, read = [(DEFAULT / "qwen3/tokenizer" / name).read_text("utf-8") for name in FILES], 0
    for seed in seeds:
        chance, texts = random.Random(seed), [*whole]
        place = chance.randrange(len(texts))
        texts[place] = changed(chance, texts[place])
        with made.clear(seed, texts[place]):
            assert all(isinstance(one, int) for one in Qwen3Tokenizer(*texts).encode(TEXT))
            read += 1
    assert 0 < read < len(seeds)


def changed(chance: random.Random, content: str) -> str:
    """Change a document as JSON, where it is JSON, or as bytes."""
    if content.lstrip().startswith("{") and chance.random() < 0.7:
        return json.dumps(made.changed_json(chance, json.loads(content)))
    return made.changed_bytes(chance, content.encode()).decode("utf-8", "replace")
