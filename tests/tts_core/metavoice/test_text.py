"""MetaVoice's normalization and byte pairs. Vectors of the original are in tests/golden."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.tiny.metavoice import tokenizers
from tests.tiny.networks import first_stage_config, second_stage_config
from tts_core.errors import CheckpointError, UsageError
from tts_core.metavoice.text import (
    PATTERN,
    TOKENIZER,
    MetaVoiceTokenizer,
    Tokenizers,
    normalise,
    read_published,
    read_tokenizers,
)
from tts_core.text.bpe import pairs_of_ranks

TABLE = tokenizers().first_stage


def test_every_replaced_character():
    """By code point: the list of the specification."""
    expected = {0x1FEF: "'", 0x1FFD: "'", 0x1FFE: "'", 0x2016: "||", 0x2018: "'", 0x2019: "'", 0x201A: ","}
    expected |= {0x201B: "`", 0x201C: '"', 0x201D: '"', 0x201E: ",,", 0x201F: '"', 0x2024: ".", 0x2025: ".."}
    expected |= {0x2026: "...", 0x2032: "'", 0x2033: '"', 0x2035: "'", 0x2036: '"', 0xB4: "'", 2122: "TM"}
    expected |= dict.fromkeys(range(0x2010, 0x2016), "-")
    for number, plain in expected.items():
        assert normalise(f"a{chr(number)}b") == f"a{plain}b"
    neighbours = {number + step for number in expected for step in (-1, 1)} - set(expected)
    for number in neighbours:
        if number < 256:
            assert normalise(f"a{chr(number)}b") == f"a{chr(number)}b"
        else:
            with pytest.raises(UsageError, match=rf"U\+{number:04X}"):
                normalise(f"a{chr(number)}b")


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("", ""),
        ("a\xa0b", "a\xa0b"),  # one space of any kind stays
        ("a\xa0 b", "a b"),
        ("\xa0 a \x85", "a"),
        ("a*\tb\r\nc", "a b c"),
        ("ÿ", "ÿ"),
    ],
)
def test_white_space(text: str, plain: str):
    assert normalise(text) == plain


def test_what_is_not_latin_is_named_once():
    with pytest.raises(UsageError) as caught:
        normalise("日本日 Ā " + "".join(map(chr, range(0x4E00, 0x4E10))))
    assert str(caught.value).count("日") == 1
    assert str(caught.value).endswith("and 9 more")


@pytest.mark.parametrize("text", ["", "Hello there.", "it's the 2nd  the\n", "ÿ\x00é", "日本 😀"])
def test_text_returns_whole(text: str):
    ids = TABLE.encode(text)
    assert ids.dtype == np.int32
    assert ids[-1] == TABLE.end_of_text == TABLE.last_id
    assert ids.min() >= TABLE.offset
    assert TABLE.decode(ids[:-1]) == text
    assert TABLE.decode(ids) == f"{text}<|endoftext|>"


def test_merging_is_by_rank_within_words():
    ranks = {bytes([b]): b for b in range(256)} | {b"bc": 256, b"ab": 257, b"abc": 258, b"e ": 259}
    table = MetaVoiceTokenizer(PATTERN, ranks, {"<|endoftext|>": 260}, 0)
    assert table.encode("abcd").tolist() == [258, ord("d"), 260]
    assert table.encode("e e").tolist() == [ord("e"), ord(" "), ord("e"), 260]  # never over an edge
    fewer = {piece: rank for piece, rank in ranks.items() if piece != b"abc"}
    table = MetaVoiceTokenizer(PATTERN, fewer, {"<|endoftext|>": 260}, 0)
    assert table.encode("abcd").tolist() == [ord("a"), 256, ord("d"), 260]


def test_special_tokens_and_strange_ids_are_refused():
    with pytest.raises(UsageError, match="special token"):
        TABLE.encode("x <|endoftext|> y")
    with pytest.raises(UsageError, match="ids: 7 is not in"):
        TABLE.decode([7])


def test_the_files_round_trip():
    stages = {"metavoice": "first_stage", "metavoice_second_stage": "second_stage"}
    written = {kind: getattr(tokenizers(), stage).to_dict() for kind, stage in stages.items()}

    def read(changes: dict[str, int]) -> Tokenizers:
        first = copy.deepcopy(written["metavoice"])
        first["mergeable_ranks"] |= changes
        tables = written | {"metavoice": first}
        return read_tokenizers({kind: {TOKENIZER: json.dumps(table)} for kind, table in tables.items()})

    assert read({}) == tokenizers()
    with pytest.raises(CheckpointError, match="not every key is base64"):
        read({"é": 700})
    with pytest.raises(CheckpointError, match="two keys are the same bytes"):
        read({"YR==": 700})  # "a" again, its unused bits set


def prefixes(count: int) -> dict[bytes, int]:
    """Tokens that can be cut after every byte."""
    ranks = {bytes([byte]): byte for byte in range(256)}
    for first in range(count):
        for length in range(2, 129):
            ranks.setdefault(bytes([first]) * length, len(ranks))
    return ranks


def test_the_work_for_pairs_grows_with_the_table():
    """Counted in hashed bytes; the largest allowed table stays small."""

    class Counting(dict):
        looked_at = 0

        def __contains__(self, piece) -> bool:
            Counting.looked_at += len(piece)
            return super().__contains__(piece)

    work = []
    for count in (8, 16):
        Counting.looked_at = 0
        pairs_of_ranks(Counting(prefixes(count)))
        work.append(Counting.looked_at)
    assert 0 < work[1] <= 2.5 * work[0]
    many = {b"%020d" % place * 12: place + 256 for place in range(5000)}
    with pytest.raises(CheckpointError, match="1200256 in all; at most 256 and 1048576"):
        MetaVoiceTokenizer(
            PATTERN, many | {bytes([byte]): byte for byte in range(256)}, {"<|endoftext|>": 9000}, 0
        )


def published(**change: Any) -> dict[str, Any]:
    return {
        "name": "custom",
        "pat_str": TABLE.pat_str,
        "mergeable_ranks": dict(TABLE.mergeable_ranks),
        "special_tokens": dict(TABLE.special_tokens),
        "offset": TABLE.offset,
    } | change


def test_a_published_table_is_checked():
    assert read_published(published()) == TABLE
    some = {piece: rank for piece, rank in TABLE.mergeable_ranks.items() if piece != b"\x80"}
    for change, message in (
        ({"mergeable_ranks": some}, "not every byte has a rank"),
        ({"mergeable_ranks": {"a": 1}}, "not every key is a byte string"),
        ({"mergeable_ranks": {**TABLE.mergeable_ranks, b"zz": 3}}, "share an id"),
        ({"special_tokens": {}}, "endoftext.* missing"),
        ({"offset": -1}, "offset -1"),
        ({"pat_str": "("}, r"pat_str is '\(', not the published one"),
        ({"pat_str": r"(?:\s+|\s+)+x"}, "not the published one"),  # exponential
        ({"pat_str": None}, "pat_str is None"),
        ({"offset": 2**30}, "offset"),
        ({"mergeable_ranks": {**TABLE.mergeable_ranks, b"zz": 2**30}}, "whole numbers of 30 bits"),
        ({"mergeable_ranks": {**TABLE.mergeable_ranks, b"zz": []}}, "whole numbers of 30 bits"),
        ({"mergeable_ranks": {**TABLE.mergeable_ranks, b"z" * 257: 900}}, "tokens of 257 bytes"),
        ({"special_tokens": {**TABLE.special_tokens, "": 900}}, "special tokens"),
        ({"special_tokens": {**TABLE.special_tokens, 5: 900}}, "special tokens"),
    ):
        with pytest.raises(CheckpointError, match=message):
            read_published(published(**change))
    with pytest.raises(CheckpointError, match="pat_str, offset missing"):
        read_published({"mergeable_ranks": {}, "special_tokens": {}})
    with pytest.raises(CheckpointError, match="expected an object"):
        read_published(None)


def test_tables_must_fit_the_networks():
    first, second = first_stage_config(), second_stage_config()
    tokenizers().check_fits(first, second)
    with pytest.raises(CheckpointError, match="of the first stage: ids 2049 to"):
        tokenizers().check_fits(replace(first, vocab_size=2100), second)
    swapped = replace(tokenizers(), second_stage=replace(TABLE, offset=0))
    with pytest.raises(CheckpointError, match="of the second stage: ids 0 to"):
        swapped.check_fits(first, second)
