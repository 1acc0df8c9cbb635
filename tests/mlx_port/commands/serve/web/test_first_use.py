"""What a first visitor meets: folded options with values, marks of faults, waiting, words, small screens."""

from __future__ import annotations

import pytest

from tests.mlx_port.commands.serve.web.chromium import SCRIPT, Page

pytestmark = [pytest.mark.browser, pytest.mark.rest]

TOPS = """
return arguments[0].map((name) => document.getElementById(name).getBoundingClientRect().top);
"""


def test_options_are_folded_and_show_values(page: Page) -> None:
    assert not page.run("return document.getElementById('options-card').open")
    page.run("document.getElementById('options-card').open = true")
    assert page.attribute("option-temperature", "placeholder") == "0.8"
    assert page.attribute("option-seed", "placeholder") == "automatic"
    assert page.attribute("option-max_seconds", "placeholder") == "no limit"
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
