"""Text rules: what a folder may ask for, the embedded voice's rules, and files that are refused."""

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.tts_core.text.growth import LINEAR, UNITS, growth
from tts_core.errors import CheckpointError
from tts_core.text.rules import FILE, NO_RULES, TextRules, read_rules
from tts_core.voice.embedded import DIA

GIVEN = (DIA / FILE).read_text("utf-8")
VOICE = read_rules({FILE: GIVEN})


def said(text: str) -> str:
    """A text of one speaker as the embedded voice reads it."""
    return VOICE.ended(VOICE.words(text))


SAID = {
    "Hello": "Hello.",
    "Hello.": "Hello.",
    "Hello,": "Hello.",
    "Why?": "Why?",
    "42 apples and $3.50, Dr. Smith": "forty two apples and three dollars and fifty cents, Doctor Smith.",
    "She said, “I won’t go!” — and left (soon).": "She said, I won't go! And left, soon.",
    "the dogs' 'quoted' bowls": "the dogs quoted bowls.",
    "the FBI at 5 p.m. Then": "the eff bee eye at five pee em. Then.",
    "Wait...what?! Really": "Wait. What! Really.",
    "Shopping list:\n- eggs\n- milk\n\nThe end": "Shopping list. Eggs. Milk. The end.",
    "1. Eggs\n2) Milk": "one, Eggs. Two, Milk.",
    "- eggs\nand ham\nGo": "eggs and ham. Go.",
    "A line\nthat goes on,\r\nand on": "A line that goes on, and on.",
    "Hi :)": "Hi.",
    "well-known 50 % & more": "well known fifty percent and more.",
    "me@home.org, 1 + 1 = 2": "me at home dot org, one plus one equals two.",
    "...": "",
    " \u200b": "",
}


@pytest.mark.parametrize("text", SAID)
def test_the_embedded_voice(text: str) -> None:
    assert said(text) == SAID[text]


@given(st.text(st.sampled_from("0123456789.,:;-$%'\"()[] \nABIabnmtps") | st.characters(codec="utf-8")))
@example("_'\"_ .B_")
def test_only_the_alphabet_is_left(text: str) -> None:
    words = said(text)
    assert set(words) <= {*str(VOICE.alphabet), " "}
    assert not re.search(r"\s\s|\s[,.!?]|[,.!?][,.!?]", words)
    assert words == "" or words[-1] in VOICE.ends


WRITTEN = (
    *("Yes.", "no,", "(really)", '"quoted"', "it's", "dogs'", "LOUD", "don't!", "a", "I", "B", "&", "—", "…"),
    *("vs", "etc.", "etc", "a.m.", "5 p.m.", "Dr. Smith", "Main St.", "U.S.", "FBI", "J. R.", "x-ray"),
    *("e.g.", "$5", "10%", "3:05", "1/2", "2nd", "1999", "May 5", "Jan. 5,", "No. 5", "555-1234", "[1]"),
    *("\n- one", "\n\n"),
)


@example("Yes. a … Yes.")
@given(st.lists(st.sampled_from(WRITTEN), max_size=8).map(" ".join))
def test_nothing_changes_twice(text: str) -> None:
    assert said(said(text)) == said(text)


def test_marks_at_the_end_are_not_doubled() -> None:
    for text in ("Yes.", "Yes!", 'He said "yes."', "(Yes.)", "Yes…"):
        assert VOICE.ended(text) == text
    for text in ("Yes", "Yes,", "Yes -", "Yes: "):
        assert VOICE.ended(text) == "Yes."
    assert VOICE.ended("") == ""


@given(st.text())
def test_no_rules_change_nothing(text: str) -> None:
    assert NO_RULES.words(text) == text
    assert NO_RULES.ended(text) == text
    assert all(map(NO_RULES.knows, text))


def test_known_characters() -> None:
    assert all(map(VOICE.knows, "aZ 5٣\n\t$€%'“”—…½°−"))
    assert not any(map(VOICE.knows, "äß東é²あ\u0301😀"))


def test_written_and_read_again() -> None:
    assert read_rules({FILE: json.dumps(VOICE.to_dict())}) == VOICE
    assert read_rules({}) is NO_RULES


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "language": ({"spoken": "de"}, "spoken is 'de'"),
    "too few letters": ({"letters": {"a": "ay"}}, "letters: give a name for each of a to z"),
    "a pair": ({"replacements": {"ab": "c"}}, "replacements: 'ab' is not one character"),
    "outside the alphabet": ({"ends": ";"}, "; : not in the alphabet".replace(" :", ":")),
    "signs": ({"replacements": {}}, "# .* −: not in the alphabet"),
    "a number": ({"pauses": 5}, "pauses and ends must be text"),
    "a list": ({"replacements": ["a"]}, "replacements: expected an object"),
    "a number for a name": ({"letters": {"a": 5}}, "letters: not every value is text"),
    "another number": ({"alphabet": 5}, "alphabet and spoken must be text or null"),
    "an unknown field": ({"more": 1}, "unknown more"),
    "a character that becomes a book": ({"replacements": {"#": "x" * 65}}, "more than 64 characters"),
    "an alphabet without end": ({"alphabet": "x" * 65537}, "or the alphabet more than 65536"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    change, message = REFUSED[name]
    with pytest.raises(CheckpointError, match=f"^{FILE}: .*{message}|^{FILE}: {message}"):
        read_rules({FILE: json.dumps(json.loads(GIVEN) | change)})


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000, '{"spoken": null}'])
def test_files_that_are_no_rules(text: str) -> None:
    with pytest.raises(CheckpointError, match=f"^{FILE}: "):
        read_rules({FILE: text})


def test_the_shortest_anchor() -> None:
    """A field that older files lack."""
    given = VOICE.to_dict()
    del given["shortest_anchor"]
    assert read_rules({FILE: json.dumps(given)}).shortest_anchor == 0
    assert read_rules({FILE: json.dumps({**given, "shortest_anchor": 12})}).shortest_anchor == 12
    for bad in (-1, 1.5, True, "3", None):
        with pytest.raises(CheckpointError, match="shortest_anchor must be a whole number"):
            read_rules({FILE: json.dumps({**given, "shortest_anchor": bad})})


def test_every_field_can_be_left_empty() -> None:
    """A folder with one rule only."""
    marks = TextRules(ends=".")
    assert marks.ended(marks.words("Größe 5")) == "Größe 5."
    numbers = TextRules(spoken="en")
    assert numbers.words("5 Größen!  ") == "five Größen!  "
    plain = replace(VOICE, spoken=None, letters={})
    assert plain.words("the FBI, “yes”") == "the FBI, yes"


@pytest.mark.parametrize("unit", UNITS)
def test_takes_linear_work(unit: str) -> None:
    assert growth(said, unit) < LINEAR
