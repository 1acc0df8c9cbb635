import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts_core.dia.tokenizer import tokenize


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("", []),
        ("[S1]", [1]),
        ("[S2]", [2]),
        ("[S1] a[S2]b", [1, 32, 97, 2, 98]),
        ("[S1][S1]", [1, 1]),
        ("[S3]", [91, 83, 51, 93]),
        ("[s1]", [91, 115, 49, 93]),
        ("[S1", [91, 83, 49]),
        ("[[S1]]", [91, 1, 93]),
        ("a\nb\r\n\t ", [97, 10, 98, 13, 10, 9, 32]),
        ("é", [0xC3, 0xA9]),
        ("e\u0301", [101, 0xCC, 0x81]),  # not composed to one letter
        ("漢", [0xE6, 0xBC, 0xA2]),
        ("😀", [0xF0, 0x9F, 0x98, 0x80]),
        ("\0", [0]),
        ("<pad>", [60, 112, 97, 100, 62]),
    ],
)
def test_bytes_and_tags(text, ids):
    tokens = tokenize(text)
    assert tokens.dtype == np.int32
    assert tokens.shape == (len(ids),)
    assert tokens.tolist() == ids


@given(st.lists(st.sampled_from(["[S1]", "[S2]", "[S", "1]", "é", " ", "\n", "word", "[S1"])).map("".join))
def test_undoing_the_tags_gives_the_text_back(text):
    ids = tokenize(text)
    assert ids.size == 0 or (ids.min() >= 0 and ids.max() <= 255)
    pieces = [{1: b"[S1]", 2: b"[S2]"}.get(i, bytes([i])) for i in ids.tolist()]
    assert b"".join(pieces).decode() == text


def test_long_text_is_not_cut():
    assert len(tokenize("x" * 5000)) == 5000
