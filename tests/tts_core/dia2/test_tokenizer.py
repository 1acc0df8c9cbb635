"""Dia2's tokenizer against the `tokenizers` library on the same file, and files that are refused."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiny.dia2 import GOLDEN, tokenizer
from tests.tts_core.growth import MOST, growth
from tts_core.dia2.tokenizer import Dia2Tokenizer, bos_id
from tts_core.errors import CheckpointError, UsageError
from tts_core.text.byte_bpe import byte_signs

FILE = GOLDEN / "tokenizer" / "tokenizer.json"
CONTENT = json.loads(FILE.read_text("utf-8"))
OURS = tokenizer()
PIECES = [
    *("[S1]", "[S2]", " ", "  ", "\n", "'s", "'ll", "12", "x9"),
    *("(laughs)", "(lau", "é", "語", "½", "!?", "\u2019"),
]
ASSIGNED = st.characters(exclude_categories=("Cs", "Cn"))  # the library knows other new letters than `regex`
TEXTS = st.lists(
    st.one_of(st.sampled_from(PIECES), st.text(ASSIGNED, max_size=6), st.sampled_from("hello there wo")),
    max_size=9,
)


@settings(max_examples=300)
@given(parts=TEXTS)
def test_ids_are_the_librarys(parts):
    library = pytest.importorskip("tokenizers").Tokenizer.from_file(str(FILE))
    text = "".join(parts)
    assert OURS.encode(text) == library.encode(text, add_special_tokens=False).ids


def test_several_merges_may_make_one_token():
    """As in files that a trainer wrote: the pair whose merge comes first is joined first."""
    library = pytest.importorskip("tokenizers")
    signs = byte_signs()
    vocabulary = {sign: place for place, sign in enumerate([*signs, "ab", "bc", "abc", "cab"])}
    model = {"type": "BPE", "vocab": vocabulary, "merges": ["a b", "b c", "a bc", "ab c", "c ab"]}
    content = CONTENT | {"model": CONTENT["model"] | model, "added_tokens": []}
    theirs = library.Tokenizer.from_str(json.dumps(content))
    ours = Dia2Tokenizer(json.dumps(content))
    for text in ("abc", "bcabc", "aabcc", "cabab", "abcabcab", "bcbcaab"):
        assert ours.encode(text) == theirs.encode(text).ids


def test_a_long_word_takes_no_quadratic_work():
    assert growth(lambda size: OURS.encode("inter" * size), 500) < MOST


def test_bos_is_one_where_the_tokenizers_is_zero():
    config = json.loads((GOLDEN / "tokenizer/tokenizer_config.json").read_text())
    assert OURS.added[config["bos_token"]] == 0
    assert bos_id(OURS, config) == 1
    assert bos_id(OURS, {"bos_token": {"content": "<|im_end|>"}}) == 2
    assert bos_id(OURS, {"bos_token": None}) == bos_id(OURS, {}) == 1


def changed(**values) -> str:
    return json.dumps(CONTENT | values)


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("{", "not readable as JSON"),
        (changed(model={"type": "Unigram"}), "model 'Unigram'; only byte-level BPE"),
        (changed(model=CONTENT["model"] | {"byte_fallback": True}), "byte_fallback True"),
        (changed(normalizer={"type": "NFC"}), "a normalizer"),
        (changed(pre_tokenizer={"type": "Whitespace"}), "only single digits and ByteLevel"),
        (changed(pre_tokenizer=None), "pre_tokenizer: expected an object"),
        (changed(model=CONTENT["model"] | {"vocab": {"a": 1}}), "255 of 256 bytes have no token"),
        (changed(model=CONTENT["model"] | {"vocab": {"a": 10**9}}), "the network has 371 ids"),
        (changed(model=CONTENT["model"] | {"merges": [["a", "b", "c"]]}), "merge 0 is"),
        (changed(model=CONTENT["model"] | {"merges": [["zzz", "b"]]}), "merge 0 of 'zzz' and 'b' is unknown"),
        (changed(model=CONTENT["model"] | {"merges": "all"}), "merges is not a list"),
        (
            changed(added_tokens=[{"id": 400, "content": "[S1]"}]),
            r"added token '\[S1\]' with id 400; 371 ids",
        ),
        (changed(added_tokens=[{"id": 3, "content": "x", "lstrip": True}]), "takes in its surroundings"),
        (changed(model=CONTENT["model"] | {"merges": [["i", "n"]] * 20}), "more than 16 merges make 'in'"),
    ],
)
def test_other_files_are_refused(content, named):
    with pytest.raises(CheckpointError, match=named):
        Dia2Tokenizer(content, most=371)


def test_half_a_surrogate_pair_is_refused():
    with pytest.raises(UsageError, match="character 1 is half of a surrogate pair"):
        OURS.encode("a\ud800")
