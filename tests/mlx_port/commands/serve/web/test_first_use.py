"""What a first visitor meets: folded options with values, marks of faults, waiting, words, small screens."""

from __future__ import annotations

import pytest

from tests.mlx_port.commands.serve.web.chromium import SCRIPT, Page
from tts_core.errors import UsageError
from tts_core.text import breaks

pytestmark = [pytest.mark.browser, pytest.mark.rest]

TOPS = """
return arguments[0].map((name) => document.getElementById(name).getBoundingClientRect().top);
"""


def test_options_are_folded_and_show_values(page: Page) -> None:
    assert not page.run("return document.getElementById('options-card').open")
    page.run("document.getElementById('options-card').open = true")
    assert page.attribute("option-temperature", "placeholder") == "0.8"
    assert page.attribute("option-seed", "placeholder") == "automatic"
    assert page.attribute("option-max_seconds", "placeholder") == "900"
    assert page.attribute("option-max_seconds", "max") == "900"
    assert "random by default" not in page.text("options")
    assert "a name without a recording always has the same one" in page.text("option-seed-help")
    assert "model's own" not in page.text("options-card")


def test_what_cannot_be_spoken_is_marked_while_typing(page: Page) -> None:
    """Tags of other speakers, and letters of other alphabets; accents are no fault."""
    page.fill("script", "[S1] Hello. [S3] Привет, café. [S2] Yes.")
    marks = page.run("return [...document.querySelectorAll('#shown mark')].map((one) => one.textContent)")
    assert marks == ["[S3]", *"Привет"]
    assert page.text("unspoken") == "Cannot be spoken: [S3] П р и в е т"
    assert page.attribute("shown", "textContent").rstrip("\n") == "[S1] Hello. [S3] Привет, café. [S2] Yes."
    page.fill("script", "[S1] Yes 😀 5² №. [pause:0.5 there")
    assert page.text("unspoken") == "Cannot be spoken: 😀 ² № [pause:0.5"
    page.fill("script", "[S1] Hello. [S2 Yes.")
    assert page.text("unspoken") == "Cannot be spoken: [S2"
    page.fill("script", "[S1] Hello. [S2] Café 5, (yes)! Straße, Łódź, Ærø. [pause:0.5] [pause/play]")
    assert page.run("return document.querySelector('#shown mark')") is None
    assert page.run("return document.getElementById('unspoken').hidden")


def test_every_mark_that_the_server_refuses_is_marked(page: Page) -> None:
    """And none that it takes."""
    texts = (
        "[pasue:1]",
        "[pause 1]",
        "[pause=1]",
        "[pause:x]",
        "[pause]",
        "[pause:700]",
        "[break:1]",
        "[paus:2]",
    )
    texts += (
        "[PUASE : 0.5 s]",
        "[rest:1]",
        "(pause:1)",
        "pause:1]",
        "<brake time='1s'/>",
        "<pause time='1s'/>",
    )
    texts += (
        "[pause:0.5]",
        "[ Pause: .5 ]",
        "[pause/play]",
        "[stop:1]",
        "[page:1]",
        "[laughs]",
        "<break time='1s'/>",
    )
    found = page.run(
        "const {wrongMarks} = await import('./page/marks.js');"
        "const found = (text) => wrongMarks(`Well, ${text} yes.`, 2).map(([mark]) => mark.trim());"
        "return arguments[0].map(found);",
        texts,
    )
    for text, marks in zip(texts, found, strict=True):
        try:
            breaks.read("text", f"Well, {text} yes.")
        except UsageError:
            assert marks, text
            assert all(mark in text for mark in marks), (text, marks)
        else:
            assert marks == [], text
    page.fill("script", "[S1] Well, [pasue:1] yes.")
    assert page.text("unspoken") == "Cannot be spoken: [pasue:1]"


def test_an_old_error_goes_when_something_changes(page: Page) -> None:
    def fail() -> None:
        page.fill("script", " ")
        page.click("speak")
        page.finish()
        page.wait("!document.getElementById('error').hidden")

    fail()
    page.the("script").send_keys("a")
    assert page.run("return document.getElementById('error').hidden")
    fail()
    page.run("document.querySelector('#insert button').click()")
    assert page.run("return document.getElementById('error').hidden")
    fail()
    page.fill("option-seed", "5")
    assert page.run("return document.getElementById('error').hidden")


def test_a_piece_that_waits_is_told_so(page: Page) -> None:
    """While something is spoken, and until it is spoken itself; a second click takes it back."""
    page.speak(SCRIPT)
    page.run("""
        document.getElementById("again-0").click();
        document.getElementById("again-1").click();
        const text = (name) => document.getElementById(name).textContent;
        window.told = [text("again-1"), text("status")];
        document.getElementById("again-1").click();
        window.told.push(document.getElementById("again-1").textContent);
    """)
    waits, status, back = page.run("return window.told")
    assert waits.startswith("Waits…")
    assert status == "Piece 2 waits until this speech ends."
    assert back.startswith("Speak again")
    page.finish()
    assert page.run("return document.getElementById('take-1-1')") is None
    page.click("again-0")
    page.click("again-1")
    page.wait("document.getElementById('take-1-1') !== null && document.getElementById('stop').disabled")
    assert page.run("return document.getElementById('take-0-2') !== null")


def test_each_turn_is_spoken_again_by_itself(page: Page) -> None:
    page.speak("[S1] Hello there. [S2] This is good.")
    texts = [one.text for one in page.driver.find_elements("css selector", "#pieces .text")]
    assert texts == ["[S1] Hello there.", "[S2] This is good."]
    page.click("again-1")
    page.finish()
    assert page.run("return document.getElementById('take-1-1') !== null")


def test_messages_use_the_words_of_the_page(page: Page) -> None:
    """No field of the API is named, whatever the server answers."""
    said = page.run("""
        const {worded} = await import("./page/words.js");
        return [
          {message: "input: [S3] is not a speaker; use [S1] and [S2]", param: "input"},
          {message: "audio_sample: too short", param: "audio_sample"},
          {message: "max_seconds: inf is not a number; the field audio_sample is read", param: "max_seconds"},
        ].map(worded);
    """)
    assert said == [
        "Script: [S3] is not a speaker; use [S1] and [S2]",
        "Recording: too short",
        "Max seconds: inf is not a number; the field Recording is read",
    ]


def test_a_phone_speaks_before_it_asks(page: Page) -> None:
    """Script, Speak, progress and player come before voice and options; no hints for a keyboard."""
    page.speak(SCRIPT)
    try:
        page.resize(390)
        tops = page.run(TOPS, ["script", "speak", "speech-card", "voice", "options-card", "pieces-card"])
        assert tops == sorted(tops)
        assert not page.run("return document.getElementById('keys').checkVisibility()")
        page.resize(1280)
        assert page.run("return document.getElementById('keys').checkVisibility()")
    finally:
        page.resize(1280)
