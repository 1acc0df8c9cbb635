"""Pauses in a text, and refused SSML."""

from contextlib import suppress

import pytest

from tests.tts_core.text.growth import LINEAR, growth
from tts_core.errors import UsageError
from tts_core.text.breaks import read


@pytest.mark.parametrize(
    ("text", "parts", "silences"),
    [
        ("Hello.", ["Hello."], [0, 0]),
        ("Hello.[PAUSE: 2 ]You.", ["Hello.", "You."], [0, 2, 0]),
        ("[pause:.25] Hello. [pause:3.]", ["Hello."], [0.25, 3]),
        ("One [pause:1] [pause:0.5] two", ["One", "two"], [0, 1.5, 0]),
        ("One[pause:0]two", ["One two"], [0, 0]),
        ('One <break time="1s"/> two', ["One", "two"], [0, 1, 0]),
        ("One <break time=1.5s/> two", ["One", "two"], [0, 1.5, 0]),
        ("One <BREAK\ttime = '+2S'></BREAK> two", ["One", "two"], [0, 2, 0]),
        ("One <break/> two", ["One", "two"], [0, 0.75, 0]),
        ('One <break strength="x-weak"/> two', ["One", "two"], [0, 0.25, 0]),
        ('One <break strength="weak" time="3s"/> two', ["One", "two"], [0, 3, 0]),
        ('One <break strength="none"/> two', ["One   two"], [0, 0]),
        ("Hello[pause:1].", ["Hello."], [0, 1]),
        ("Hello [pause:1], you. [pause:2] ... [pause:3] So.", ["Hello,", "you....", "So."], [0, 1, 5, 0]),
        ("Hello [pause:1] ...you", ["Hello", "...you"], [0, 1, 0]),
        ("[pause:1] ... [pause:2]", ["..."], [3, 0]),
        ("A [pause:600] b", ["A", "b"], [0, 600, 0]),
    ],
)
def test_pauses(text: str, parts: list[str], silences: list[float]) -> None:
    found = read("text", text)
    assert (list(found.parts), list(found.silences)) == (parts, silences)
    assert len(found.blanked) == len(text)
    assert not any(mark in found.blanked for mark in "[<")
    assert "".join("".join(found.parts).split()) == "".join(found.blanked.split())


@pytest.mark.parametrize(
    "text",
    [
        "a < b",
        "I <3 you",
        "p <s and t> 3",
        "<b>bold</b>",
        "press [pause/play]",
        "<speakeasy",
        "[pause",
        "< break>",
        "<br/>",
        "[S1] Hello.",
    ],
)
def test_spoken_as_written(text: str) -> None:
    found = read("text", text)
    assert (found.parts, found.silences, found.blanked) == ((text,), (0, 0), text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '\n<?xml version="1.0"?><speak version="1.1" xml:lang="en">Hi',
            "<speak> is SSML, from character 23 on",
        ),
        ("<speak>A <b>bold</b> <break/> word", "<speak>, <b> are SSML, from character 1 on"),
        ("<speak unclosed", "<speak> is SSML, from character 1 on; only <break> is understood: leave "),
        ("Say <prosody rate='slow'>it</prosody>", "<prosody> is SSML, from character 5 on"),
        ("A <p>new</p> <s>one</s>", "<p>, <s> are SSML, from character 3 on"),
        ('<mstts:express-as style="sad">Hi', "<mstts:express-as> is SSML"),
        ("<Say-As interpret-as=date>", "<say-as> is SSML"),
        ("<sub><w><token><voice><mark><lang>", "<sub>, <w>, <token>, <voice>, <mark> and more are SSML"),
        ('A <break time="1m"/>', "<break> at character 3 has a time that cannot be read; write "),
        ('A <break time="1e9s"/>', "<break> at character 3 has a time"),
        ('A <break time="601s"/>', "<break> at character 3 is 601 s long; a pause is 600 s at most"),
        ('A <break strength="huge"/>', "<break> at character 3 has an unknown strength; use none, x-weak"),
        ('A <break size="small"/>', "<break> at character 3 cannot be read; write "),
        ('A <break time="1s" time="2s"/>', "<break> at character 3 cannot be read"),
        ('A </break time="1s">', "<break> at character 3 cannot be read"),
        ("A [pause]", "[pause] at character 3 has no length in seconds; write [pause:0.5]"),
        ("A [pause:one]", "[pause] at character 3 has no length"),
        ("A [pause:-1]", "[pause] at character 3 has no length"),
        ("A [pause:²]", "[pause] at character 3 has no length"),
        ("A [pause:1e3]", "[pause] at character 3 has no length"),
        ("A [pause:600.01]", "[pause] at character 3 is 600.01 s long; a pause is 600 s at most"),
        (f"A [pause:{'9' * 5000}]", "[pause] at character 3 is inf s long; a pause is 600 s at most"),
    ],
)
def test_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        read("text", text)
    assert str(caught.value).startswith(f"text: {message}")
    assert len(str(caught.value)) < 200


def test_a_speakers_tag_goes_to_the_next_part() -> None:
    """By the model's own rule for spoken characters."""

    def spoken(part: str) -> bool:
        return any(map(str.isalnum, part.replace("[S1]", "")))

    found = read("text", "[S1] [pause:1] Hello. [pause:2] [S1] [pause:3] You. [pause:4] [S1]", spoken=spoken)
    assert found.parts == ("[S1] Hello.", "[S1] You. [S1]")
    assert found.silences == (1, 5, 4)


def test_cut() -> None:
    """Every part by itself; the usual pause between its pieces."""
    found = read("text", "[pause:1] a b c [pause:2] d [pause:0.5] e f")
    pieces, silences = found.cut(str.split)
    assert pieces == ["a", "b", "c", "d", "e", "f"]
    assert silences == (1, None, None, 2, 0.5, None, None)
    assert read("text", "a b").cut(str.split) == (["a", "b"], (None, None, None))


PARTS = (
    *("<", "[", "<a", "[pause:", "<s", "<break", "<a:", ".", "[pause", "<b>"),
    *(".[pause:1]", "a[pause:1]", "[pause:0]", "<s\ta='", "<break\ta=1"),
)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("lead", ["", "<s", "a [pause:1] "])
def test_work_is_linear(part: str, lead: str) -> None:
    assert growth(lambda text: read_or_refuse(lead + text), part) < LINEAR


def read_or_refuse(text: str) -> None:
    with suppress(UsageError):
        read("text", text)


def test_form_feeds_and_vertical_tabs_are_spaces() -> None:
    assert read("text", "a\fb\vc").parts == ("a b c",)
    assert read("text", "a\fb [pause:1] c\vd").parts == ("a b", "c d")
