"""Checks of MetaVoice's tokenizer.json: the table, texts both ways, and normalization."""

from __future__ import annotations

import json
from base64 import b64decode
from pathlib import Path

import pytest

from tests.golden.cases import existing
from tts_core.errors import UsageError
from tts_core.metavoice.text import END_OF_TEXT, MetaVoiceTokenizer, Tokenizers, normalise


def check_tokenizer(folder: Path, published: Tokenizers) -> None:
    """published: the tokenizers in the checkpoints of the same folder."""
    given = json.loads(existing(folder / "tokenizer.json").read_text())
    ranks = {b64decode(piece): rank for piece, rank in given["mergeable_ranks_b64"].items()}
    for name, offset in given["settings"]["offset"].items():
        table = MetaVoiceTokenizer(given["pat_str"], ranks, given["special_tokens"], offset or 0)
        assert table.end_of_text == given["eot"][name], name
        if name != "raw":
            assert getattr(published, name) == table, f"{name}: the checkpoint's table is another"
        for case in given["cases"]:
            ids = table.encode(case["text"])
            assert ids.tolist() == case[name], f"{name}: {case['text']!r}"
            assert table.decode(ids[:-1]) == case["text"]
            if name == "first_stage":
                assert table.decode(ids[:-1]) == case["decode_first_without_eot"]
                assert table.decode(ids) == case["decode_first_with_eot"]
    assert given["special_in_text"] == "ValueError"
    with pytest.raises(ValueError, match="special token"):
        published.first_stage.encode(f"x {END_OF_TEXT} y")
    for case in given["normalise"]:
        if "error" in case:
            assert case["error"] == "ValueError", case
            with pytest.raises(UsageError) as caught:
                normalise(case["text"])
            assert isinstance(caught.value, ValueError)
        else:
            assert normalise(case["text"]) == case["out"], case
