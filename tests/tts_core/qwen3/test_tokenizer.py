"""Qwen3-TTS's tokenizer: files that are refused, and control tokens in the texts of a request."""

import json
from typing import Any

import pytest

from tests.golden.cases import DEFAULT
from tts_core.errors import CheckpointError, UsageError
from tts_core.qwen3.tokenizer import FILES, Qwen3Tokenizer

GOLDEN = DEFAULT / "qwen3" / "tokenizer"
TEXTS = [(GOLDEN / name).read_text("utf-8") for name in FILES]
OURS = Qwen3Tokenizer(*TEXTS)
SPECIAL = "<|im_end|>"


def added(**values: Any) -> str:
    entry = {"content": "<|x|>", "special": True} | values
    return json.dumps({"added_tokens_decoder": {"7": entry}})


@pytest.mark.parametrize(
    ("place", "content", "named"),
    [
        (0, "{", "vocab.json: not readable as JSON"),
        (0, '{"a": 1}', "vocab.json, merges.txt: 255 of 256 bytes have no token"),
        (0, json.dumps(json.loads(TEXTS[0]) | {"zz": 900}), "'zz' has id 900, the network has 454 ids"),
        (1, "#version: 0.2\na b c\n", "merges.txt: merge 1 is not two tokens"),
        (2, "[]", "tokenizer_config.json: not a JSON object"),
        (2, added(lstrip=True), "takes in its surroundings"),
        (2, added(content=""), "added token '' with id 7"),
        (2, added().replace('"7"', '"seven"'), "with id 'seven'; 454 ids"),
        (2, added().replace('"7"', '"9000"'), "with id 9000; 454 ids"),
    ],
)
def test_other_files_are_refused(place: int, content: str, named: str) -> None:
    texts = [*TEXTS]
    texts[place] = content
    with pytest.raises(CheckpointError, match=named):
        Qwen3Tokenizer(*texts, most=454)


@pytest.mark.parametrize("what", ["text", "transcript", "instruction"])
def test_a_control_token_is_refused_in_one_line(what: str) -> None:
    OURS.check_plain("a <|im_end| > b", what)
    with pytest.raises(
        UsageError, match=rf"^{what}: contains '<\|im_end\|>', which controls the model; remove it$"
    ):
        OURS.check_plain(f"a{SPECIAL}b", what)


def test_composed_and_decomposed_letters_are_equal() -> None:
    assert OURS.encode("e\u0301") == OURS.encode("\u00e9")
