"""Marks that are not closed or misspelt are refused with their place; other brackets are read."""

import pytest

from tests.tts_core.growth import MOST, growth
from tts_core.errors import FieldError
from tts_core.text import breaks
from tts_core.text.marks import BREAK, PAUSE, SHOWN

WRONG = [  # text, mark as it is shown, its character, what is wrong, what to write
    ("[pause:0.5 There.", "[pause:0.5", 1, "is not closed", PAUSE),
    ("Hi. [pause:0.5", "[pause:0.5", 5, "is not closed", PAUSE),
    ("[pause:0.5[S2] Yes.", "[pause:0.5", 1, "is not closed", PAUSE),
    ("[pause 1 a\nb]", "[pause", 1, "is not closed", PAUSE),
    ("Hi [PAUSE 0.5] there", "[PAUSE 0.5]", 4, "cannot be read", PAUSE),
    ("[pause=0.5] x", "[pause=0.5]", 1, "cannot be read", PAUSE),
    ("[pasue:1] x", "[pasue:1]", 1, "is no mark of a pause", PAUSE),
    ("a [break:1] x", "[break:1]", 3, "is no mark of a pause", PAUSE),
    ("a (pause:0.5) x", "(pause:0.5)", 3, "is not in square brackets", PAUSE),
    ("a {pause:.5} x", "{pause:.5}", 3, "is not in square brackets", PAUSE),
    ("a pause:0.5] x", "pause:0.5]", 3, "has no opening bracket", PAUSE),
    ('a <break time="1s" x', "<break", 3, "is not closed", BREAK),
    ('a < break time="1s"/> x', '< break time="1s"/>', 3, "cannot be read", BREAK),
    ('<brake time="1s"/> x', '<brake time="1s"/>', 1, "is no tag of a pause", BREAK),
    ("<breake/> x", "<breake/>", 1, "is no tag of a pause", BREAK),
    ('<pause time="1s"/> x', '<pause time="1s"/>', 1, "is no tag of a pause", BREAK),
    ("[S1 Hello.", "[S1", 1, "is not closed", "[S1]"),
    ("[S1] a [s2 Hello.", "[s2", 8, "is not closed", "[S2]"),
    ("Hi [pause\nthere]", "[pause", 4, "is not closed", PAUSE),
    ("[pause [S1] there", "[pause", 1, "is not closed", PAUSE),
    ("S1] Hi", "S1]", 1, "has no opening bracket", "[S1]"),
    ("[S1] Hi. s2] Yes.", "s2]", 10, "has no opening bracket", "[S2]"),
    ("(S1) Hi", "(S1)", 1, "is not in square brackets", "[S1]"),
    ("Hi.\n {s2} Yes.", "{s2}", 6, "is not in square brackets", "[S2]"),
    ("[S1] Hi! <S2> Yes.", "<S2>", 10, "is not in square brackets", "[S2]"),
    ("(S1] Hello.", "(S1]", 1, "has no opening bracket", "[S1]"),
]


@pytest.mark.parametrize(("text", "mark", "place", "what", "instead"), WRONG)
def test_slips_are_refused_with_their_place(
    text: str, mark: str, place: int, what: str, instead: str
) -> None:
    with pytest.raises(FieldError) as error:
        breaks.read("text 2", text)
    assert str(error.value) == f"text 2: {mark} at character {place} {what}; write {instead}"


def test_the_first_slip_is_named_and_cut() -> None:
    with pytest.raises(FieldError) as error:
        breaks.read("text", f"[pause:1] [S1) [pause {'9' * 40}]")
    assert str(error.value).startswith("text: [S1) at character 11 ")
    with pytest.raises(FieldError) as error:
        breaks.read("text", f"[pause {'9' * 40}]")
    assert str(error.value).startswith("text: [pause at character 1 ")
    with pytest.raises(FieldError) as error:
        breaks.read("text", f"[pause={'9' * 40}]")
    assert f"text: [pause={'9' * (SHOWN - 7)}… at character 1 " in str(error.value)


@pytest.mark.parametrize(
    "text",
    [
        "a < b, 3 > 2, I <3 you",
        "[note:1] x",
        "[paused] x",
        "[Genesis 1:3] In the beginning",
        "[laughs] (sighs) {x} a[1]",
        "<b>bold</b> <br/> <bread> breakfast",
        "press pause: 3 times (pause) [pause/play] < break>",
        "[S1] Hello. [S2] Yes. [S1]",
        "Figure (S1) shows it, (s2) too; S1 and [pause there] wait, x[s1] and AS1] and [S 12]",
        "[S12 units] and [Size 4]",
        "a stop [pause:0.5] b <break/> c <break time='1s'></break> d",
        "https://example.org/a?pause=5&x=[1]",
    ],
)
def test_other_brackets_are_read(text: str) -> None:
    breaks.read("text", text)


def test_twice_the_text_takes_twice_the_work() -> None:
    for part in ["[ ", "< x", "pause:1", "[pas", "(s 1 ", "<brea ", "[pause:1] ", "s1 ] ", ". (s1 "]:
        assert growth(lambda count, part=part: breaks.read("text", "a " + part * count), 1500) < MOST
