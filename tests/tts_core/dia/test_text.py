import re
import unicodedata
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.tts_core.text.growth import LINEAR, UNITS, growth
from tts_core.dia.text import prepare, tokenize, turns, words_of
from tts_core.errors import UsageError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[S1] One. [S2] Two.", "[S1] One. [S2] Two."),
        ("Hello.", "[S1] Hello."),
        ("intro [S1] a [S2] b", "[S1] intro [S1] a [S2] b"),
        ("[S1] One. [S2]", "[S1] One. [S2]"),
        ("Hello. [S1]", "[S1] Hello. [S1]"),
        ("[S1]One.[S2]Two.", "[S1]One.[S2]Two."),
        ("  \n[S1] One.\n[S2] Two.\n\n", "[S1] One.\n[S2] Two."),
        ("[S1] One.\r\n[S2] Two.\r[S1] Three.", "[S1] One.\n[S2] Two.\n[S1] Three."),
        ("[S1]\tTab", "[S1]\tTab"),
        ("[s1] One. [s2]Two. [S1] [s1", "[S1] One. [S2]Two. [S1] [s1"),
        ("...", "[S1] ..."),
        ("[S] [SS1] [12]", "[S1] [S] [SS1] [12]"),
        ("Größe 😀", "[S1] Größe 😀"),
    ],
)
def test_what_is_tokenised(text, expected):
    assert prepare(text, 1024) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "text: there are no words in it"),
        (" \n\t ", "text: there are no words in it"),
        ("[S1] [S2]\n[S1]", "text: there are no words in it"),
        ("\u200b\ufeff", "text: there are no words in it"),
        ("[S1] One. [S3] Two.", r"text: \[S3\] is not a speaker; use \[S1\] and \[S2\]"),
        ("[s3] One.", r"\[s3\] is not a speaker"),
        ("[ S1 ] One.", r"\[ S1 \] is not a speaker"),
        ("[S12] One.", r"\[S12\] is not a speaker"),
        ("[S1] [S2] Hi.", r"text: turn 1 of 2, \[S1\], has no words; write them or remove its tag"),
        ("[S1] Hi. [S2] \n [S1] You.", r"text: turn 2 of 3, \[S2\], has no words"),
        ("[S1] Hi. [S2] [S1]", r"text: turn 2 of 3, \[S2\], has no words"),
        ("Hi\0you", r"text: character 3 is U\+0000, a control character; remove it"),
        ("Hi\x1f", r"character 3 is U\+001F"),
        ("Hi\x7f", r"character 3 is U\+007F"),
        ("Hi\x85you", r"character 3 is U\+0085"),
        ("Hi \udce9", r"character 4 is U\+DCE9"),
    ],
)
def test_what_is_refused(text, message):
    with pytest.raises(UsageError, match=f"^{message}" if message.startswith("text") else message) as caught:
        prepare(text, 1024)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("transcript", "text", "expected"),
    [
        ("[S1] I said this.", "[S2] And I that.", "[S1] I said this. [S2] And I that."),
        ("I said this.", "And I go on.", "[S1] I said this. And I go on."),
        ("[S2] I said this.\n", " And I go on.", "[S2] I said this. And I go on."),
        ("[S1] I said this. [S2]", "Did you?", "[S1] I said this. [S2] Did you?"),
        ("[s1] I said this.", "[s2] And I that.", "[S1] I said this. [S2] And I that."),
    ],
)
def test_a_transcript_goes_in_front(transcript, text, expected):
    assert prepare(text, 1024, transcript=transcript) == expected


@pytest.mark.parametrize(
    ("transcript", "text", "message"),
    [
        ("", "Hi.", "transcript: there are no words"),
        ("[S1]", "Hi.", "transcript: there are no words"),
        ("Hi.", "[S1]", "text: there are no words"),
        ("Hi\0", "Hi.", "transcript: character 3"),
        ("[S1] Hi. [S2]", "[S1] Hi.", r"turn 2 of 3, \[S2\], has no words"),
        ("[S1] Hi. [S4] You.", "[S1] Hi.", r"\[S4\] is not a speaker"),
        ("x" * 60, "Hi.", "transcript: 63 bytes, the model takes 64 with the text; use a shorter reference"),
        (
            "x" * 40,
            "y" * 40,
            "text: 83 bytes, 43 of them the transcript's, the model takes 64; split it after character 21",
        ),
    ],
)
def test_a_transcript_is_checked_too(transcript, text, message):
    with pytest.raises(UsageError, match=message):
        prepare(text, 64, transcript=transcript)


def test_the_limit_counts_a_tag_as_one_byte():
    assert prepare("[S1]" + "x" * 63, 64)
    with pytest.raises(UsageError, match=r"^text: 65 bytes, the model takes 64"):
        prepare("[S1]" + "x" * 64, 64)
    assert prepare("x" * 1_000, None)


@pytest.mark.parametrize(
    ("text", "limit", "where"),
    [
        ("[S1] Hello there. [S2] And you? [S1] I am fine.", 30, r"after character 32 \(the end of a turn\)$"),
        (
            "[S2] Hello. There is more. And more.",
            25,
            r"character 26 \(the end of a sentence\), and begin the rest with \[S2\]$",
        ),
        (
            "Hello there is much more",
            16,
            r"character 14 \(the end of a word\), and begin the rest with \[S1\]$",
        ),
        ("x" * 100, 20, r"character 18 \(inside a word\), and begin the rest with \[S1\]$"),
        ("é" * 100, 20, r"character 9 \(inside a word\)"),
        ("\r\n Hi.\r\nYou there.", 10, r"character 6 \(the end of a sentence\)"),
    ],
)
def test_a_long_text_is_told_where_to_split(text, limit, where):
    with pytest.raises(UsageError, match=where):
        prepare(text, limit)


SPOKEN = st.text(st.characters(exclude_categories=["Cs", "Cc", "Cf"]), min_size=1, max_size=40).filter(
    lambda words: "[" not in words and any(unicodedata.category(char)[0] != "Z" for char in words)
)
TURN = st.tuples(st.sampled_from(["[S1]", "[S2] "]), SPOKEN).map("".join)
SCRIPT = st.tuples(st.one_of(st.just(""), SPOKEN), st.lists(TURN, max_size=6)).map(
    lambda parts: parts[0] + "".join(parts[1])
)


def visible(text):
    return [char for char in text if not char.isspace()]


@given(SCRIPT)
def test_no_visible_character_is_lost_or_moved(text):
    assume(text)
    whole = prepare(text, None)
    added = "" if text.strip().startswith(("[S1]", "[S2]")) else "[S1] "
    assert whole.startswith(added)
    assert visible(whole[len(added) :]) == visible(text)


@given(SCRIPT)
def test_turns_joined_are_the_text(text):
    found = turns(text)
    assert "".join(text[turn.start : turn.stop] for turn in found) == text
    assert [turn.speaker for turn in found[1:]] == re.findall(r"\[(S[12])\]", text)[
        -len(found) + 1 or len(text) :
    ]


def split_as_told(text, limit):
    """Parts of a text cut as the messages say, each starting with the tag that the message names."""
    parts = []
    while True:
        try:
            prepare(text, limit)
        except UsageError as error:
            stated = re.search(
                r"after character (\d+) \(.*?\)(?:, and begin the rest with (\[S\d\]))?$", str(error)
            )
            assert stated, error  # noqa: PT017
            parts.append(text[: int(stated[1])])
            text = (stated[2] or "") + text[int(stated[1]) :]
        else:
            return [*parts, text]


@given(SCRIPT, st.integers(min_value=20, max_value=60))
def test_splitting_as_told_gives_parts_that_fit_and_make_up_the_text(text, limit):
    assume(text)
    parts = split_as_told(text, limit)
    for part in parts:
        prepare(part, limit)
    words = re.sub(r"\[S[12]\]", "", "".join(parts))
    assert words == re.sub(r"\[S[12]\]", "", text)


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("", []),
        ("[S1]", [1]),
        ("[S2]", [2]),
        ("[S1] a[S2]b", [1, 32, 97, 2, 98]),
        ("[S1][S1]", [1, 1]),
        ("[s1]", [91, 115, 49, 93]),
        ("[[S1]]", [91, 1, 93]),
        ("a\nb\r\n\t ", [97, 10, 98, 13, 10, 9, 32]),
        ("e\u0301", [101, 0xCC, 0x81]),  # not composed to one letter
        ("\0", [0]),
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


def test_the_words_of_ids_are_the_text_without_its_tags():
    assert words_of(tokenize("[S1] Né. [S2] Yes! [S1]")) == "  Né.   Yes!  "
    assert words_of(tokenize("")) == ""


def test_long_text_is_not_cut():
    assert len(tokenize("x" * 5000)) == 5000


def check(text):
    """Prepare a text that is too long, and one that fits."""
    for limit in (64, None):
        with suppress(UsageError):
            prepare(text, limit, transcript="[S1] Before.")


@pytest.mark.parametrize("unit", UNITS)
def test_takes_linear_work(unit):
    assert growth(check, unit) < LINEAR
