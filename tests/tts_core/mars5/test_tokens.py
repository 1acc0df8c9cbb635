"""MARS5's tokenizers: the file format and its faults, identity of encode and decode, and the prompts."""

import random

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.tts_core.growth import peak_bytes
from tts_core.errors import CheckpointError, UsageError
from tts_core.mars5.tokens import CodecVocabulary, SpeechTokenizer, TextTokenizer, read_table

HEAD = "minbpe v1\nthis line is not read\n"


def content(base: int, merges: list[tuple[int, int]], specials: list[str]) -> str:
    lines = [f"{token} {base + len(merges) + place}" for place, token in enumerate(specials)]
    lines += [f"{left} {right}" for left, right in merges]
    return HEAD + f"{len(specials)}\n" + "\n".join(lines) + "\n"


def trained(base: int, merges: int, low: int, high: int) -> list[tuple[int, int]]:
    """Merges among symbols low .. high-1, later ones also of earlier ones."""
    chance = random.Random(base)
    found: dict[tuple[int, int], None] = {}
    while len(found) < merges:
        known = [*range(low, high), *range(base, base + len(found))]
        found[chance.choice(known), chance.choice(known)] = None
    return list(found)


LETTERS = [(ord(a), ord(b)) for a, b in ("th", " t", "in", "er", "  ")]
TEXT = content(256, [*LETTERS, (257, 104), (259, 256)], ["<|startoftext|>", "<|endoftext|>"])
SPEECH = content(1024, trained(1024, 60, 0, 12), ["<|startofspeech|>", "<|endofspeech|>"])
VOCABULARY = CodecVocabulary.read(TEXT, SPEECH, vocab_size=1351)
START, END = 263, 264


@given(st.text(max_size=80))
@example("  two  spaces\r\n\r\n and\tmore ")
@example("日本語 naïve 🙂 ́")
def test_text_survives(text):
    ids = VOCABULARY.text.encode(text)
    assert VOCABULARY.text.decode(ids) == text
    assert max(ids, default=0) < START


@given(st.lists(st.integers(0, 1023) | st.integers(0, 12), max_size=80))
def test_codes_survive(codes):
    ids = VOCABULARY.speech.encode(codes)
    assert VOCABULARY.speech.decode(ids) == codes
    assert len(ids) <= len(codes)


def test_sizes():
    assert (VOCABULARY.first_speech, VOCABULARY.speech.size) == (265, 1024 + 60 + 2)
    assert VOCABULARY.size == 265 + 1086
    assert VOCABULARY.end == VOCABULARY.size - 1
    with pytest.raises(CheckpointError, match="265 text ids and 1086 speech ids, the network has 1352"):
        CodecVocabulary.read(TEXT, SPEECH, vocab_size=1352)


def test_special_tokens_in_text():
    text = TextTokenizer(TEXT)
    marked = "<|startoftext|>in<|endoftext|>"
    assert text.encode(marked) == [START, 258, END]
    assert text.decode([START, 258, END]) == marked
    assert text.encode("in") == [258]


def test_what_is_no_text_or_code():
    with pytest.raises(UsageError, match="character 1 is half"):
        VOCABULARY.text.encode("a\ud800")
    assert VOCABULARY.text.decode([0xFF, 65]) == "�A"
    for wrong in (-1, 1024):
        with pytest.raises(UsageError, match=f"{wrong} is outside 0 .. 1023"):
            VOCABULARY.speech.encode([5, wrong])


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ("", "line 1 is ''"),
        ("minbpe v2\n\n0\n", "line 1 is 'minbpe v2'"),
        ("minbpe v1\n", "line 3"),
        (HEAD + "two\n", "line 3"),
        (HEAD + "-1\n", "line 3"),
        (HEAD + "3\n<a> 256\n", "line 3"),
        (HEAD + "1\n<a>\n", "line 4 is '<a>', expected a special token"),
        (HEAD + "1\n<a> b 256\n", "line 4"),
        (HEAD + "0\n1 2 3\n", "line 4 is '1 2 3', expected the two ids"),
        (HEAD + "0\n1 2\n\n3 4\n", "line 5 is ''"),
        (HEAD + "0\n1 256\n", "line 4 merges ids 1 and 256, but only 256 are known"),
        (HEAD + "1\n<a> 258\n1 2\n", "special id 258 leaves a gap after the 258 ids"),
        (HEAD + "0\n" + "".join(f"{i} {i}\n" for i in [1, *range(256, 280)]), "more than 1024 symbols"),
    ],
    ids=str,
)
def test_broken_files(broken, message):
    with pytest.raises(CheckpointError, match=f"x.model: .*{message}"):
        read_table(broken, 256, "x.model")


def doubling(base: int, doublings: int, repeats: int) -> str:
    """Merges that double in length; the last one is then repeated."""
    chain = [(0, 0), *[(base + place, base + place) for place in range(doublings - 1)]]
    again = [(base + doublings - 2, base + doublings - 2)] * repeats
    return content(base, [*chain, *again], ["<|startoftext|>", "<|endoftext|>", "<|endofspeech|>"])


@pytest.mark.parametrize(("kind", "base"), [(TextTokenizer, 256), (SpeechTokenizer, 1024)])
@pytest.mark.parametrize("doublings", [10, 16])
def test_doubling_merges_are_refused_before_anything_is_built(kind, base, doublings):
    """20 kB that would take a gigabyte."""
    hostile = doubling(base, doublings, 2000)
    assert len(hostile) < 25_000

    def read() -> None:
        with pytest.raises(CheckpointError, match=r"(more than 1024|exceed 1048576) symbols$"):
            kind(hostile)

    assert peak_bytes(read) < 2**22


@pytest.mark.parametrize(("kind", "base"), [(TextTokenizer, 256), (SpeechTokenizer, 1024)])
def test_memory_grows_with_the_file(kind, base):
    """Up to the largest tables that are allowed."""
    half, whole = (peak_bytes(lambda n=n: kind(doubling(base, 10, n))) for n in (500, 1000))
    assert whole < 2.5 * half
    assert whole < 2**25


def test_ids_are_counted_before_tokens_are_built():
    """A file of half a million lines beside a network of 1,351 ids; by the text, then by the speech."""
    endless = HEAD + "0\n" + "1 2\n" * 500_000

    def read(text: str, speech: str) -> None:
        with pytest.raises(CheckpointError, match=r"lines, the network has [0-9]+ ids for it"):
            CodecVocabulary.read(text, speech, vocab_size=1351)

    assert peak_bytes(lambda: read(endless, SPEECH)) < 2**22
    assert peak_bytes(lambda: read(TEXT, endless)) < 2**22
    with pytest.raises(CheckpointError, match=r"speechtok.model: 1085 ids, the network has 1084 for it"):
        CodecVocabulary.read(TEXT, content(1024, [(1, 2)] * 61, ["<|endofspeech|>"]), vocab_size=1349)
    many = HEAD + "300\n" + "".join(f"<{place}> {place + 256}\n" for place in range(300))
    with pytest.raises(CheckpointError, match="300 special tokens; more than 256"):
        TextTokenizer(many)


def test_missing_special_tokens():
    with pytest.raises(
        CheckpointError, match=r"speechtok.model: no special token <\|endofspeech\|>; it has <a>"
    ):
        SpeechTokenizer(content(1024, [], ["<a>"]))
    with pytest.raises(CheckpointError, match=r"texttok.model: no special token <\|endoftext\|>"):
        TextTokenizer(content(256, [], ["<|startoftext|>"]))


def test_line_ends_and_special_ids_in_any_order():
    shuffled = HEAD + "2\n<|endofspeech|>\t1025\n<x>  1024\n"
    tokenizer = SpeechTokenizer(shuffled.replace("\n", "\r\n"))
    assert (tokenizer.size, tokenizer.end) == (1026, 1025)
    assert tokenizer.decode([7, 1024, 1025]) == [7, "<x>", "<|endofspeech|>"]


def test_shallow_prompt():
    prompt = VOCABULARY.shallow(" thin \n", length_factor=0.5)
    assert prompt.tokens.tolist() == [START, 256, 258, END]
    assert prompt.tokens.dtype == np.int32
    assert (prompt.text_tokens, prompt.first_code) == (4, 5)
    assert prompt.expected_tokens == 4  # 3.5 rounds to even, counted before the text is stripped


def test_deep_prompt():
    """The transcript is not stripped, one space follows; its codes are merged and follow the text."""
    codes = np.array([0, 1, 2, 3, 4, 5, 6, 7] * 4)
    prompt = VOCABULARY.deep("in ", " er ", codes)
    assert prompt.tokens[: prompt.text_tokens].tolist() == VOCABULARY.text.encode(
        "<|startoftext|> er  in<|endoftext|>"
    )
    speech = (prompt.tokens[prompt.text_tokens :] - VOCABULARY.first_speech).tolist()
    assert speech == VOCABULARY.speech.encode(codes.tolist())
    assert prompt.first_code == prompt.text_tokens + 1
    assert prompt.expected_tokens == 3
    heard = VOCABULARY.codes(prompt.tokens, first=prompt.first_code)
    assert heard.tolist() == codes[len(VOCABULARY.speech.decode(speech[:1])) :].tolist()


@pytest.mark.parametrize(("factor", "expected"), [(1.0, 5), (0.5, 2), (0.7, 4), (0.0, 0), (0.3, 2)])
def test_expected_length(factor, expected):
    """Halves are rounded to even."""
    assert VOCABULARY.shallow("thing", length_factor=factor).expected_tokens == expected


def test_text_ids_and_special_tokens_among_the_codes():
    ids = np.array([VOCABULARY.first_speech - 1, VOCABULARY.first_speech + 7, VOCABULARY.end])
    assert VOCABULARY.codes(ids).tolist() == [0, 7]
    assert VOCABULARY.codes(ids[:0]).tolist() == []
