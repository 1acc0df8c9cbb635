"""Acronyms, initials and single letters."""

import pytest

from tests.tts_core.text.growth import LINEAR, UNITS, growth
from tts_core.text.letters import spelled

NAMES = {letter: f"{letter}ay" for letter in "abcdefghijklmnopqrstuvwxyz"}

SPELLED = {
    "the FBI and the BBC": "the fay bay iay and the bay bay cay",
    "U.S. troops, the U.S.A. They": "uay say troops, the uay say aay. They",
    "It is U.S.": "It is uay say.",
    "five p m or nine a m": "five pay may or nine aay may",
    "J. R. R. Tolkien and B. A. Baracus": "jay ray ray Tolkien and bay aay Baracus",
    "It is I. Then A came": "It is I. Then A came",
    "plan B, an x-ray": "plan bay, an xay-ray",
    "TVs and PCs": "tay vays and pay cays",
    "I'm sure it's o'clock, don't": "I'm sure it's o'clock, don't",
    "Stop NOW, DON'T go to NASA": "Stop now, don't go to nasa",
    "HELLO US WORLD": "hello us world",
    "FBI": "fay bay iay",
    "km, tv, hmm, shh, rhythm": "kay may, tay vay, hmm, shh, rhythm",
    "McDonald iPhone": "McDonald iPhone",
}


@pytest.mark.parametrize("text", SPELLED)
def test_spelled(text: str) -> None:
    assert spelled(text, NAMES) == SPELLED[text]


@pytest.mark.parametrize("unit", UNITS)
def test_takes_linear_work(unit: str) -> None:
    assert growth(lambda text: spelled(text, NAMES), unit) < LINEAR
