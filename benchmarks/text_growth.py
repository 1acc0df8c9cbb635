"""Time of what reads texts, by length: a text that is eight times longer takes about eight times as long.

    python benchmarks/text_growth.py [--length 15625]

Tests count lines of Python and steps of regular expressions instead (tests/tts_core/growth.py), which are the
same on every machine; this also sees what C does within a line. Each function reads every text of repeated
units, which the tests read, at two lengths; the slowest and the steepest are printed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from contextlib import suppress

from tests.tts_core.text.growth import UNITS
from tts_core.dia.pieces import read as read_script
from tts_core.dia.text import prepare, tokenize
from tts_core.errors import UsageError
from tts_core.text import breaks
from tts_core.text.accents import without_accents
from tts_core.text.arriving import Sentences, Words
from tts_core.text.captions import turn_texts
from tts_core.text.letters import spelled
from tts_core.text.rules import FILE, read_rules
from tts_core.text.sentences import places, split
from tts_core.text.spoken import spoken
from tts_core.voice.embedded import DIA

TIMES = 8
LEAST = 0.01  # seconds, below which a ratio says nothing
NAMES = {letter: f"{letter}ay" for letter in "abcdefghijklmnopqrstuvwxyz"}


def functions() -> dict[str, Callable[[str], object]]:
    """Functions of a text, by name."""
    from tests.tts_core.dia.test_pieces import CONFIG, RATE

    voice = read_rules({FILE: (DIA / FILE).read_text("utf-8")})
    return {
        "spoken": spoken,
        "split": lambda text: split(text, 100),
        "places": lambda text: [*places(text)],
        "spelled": lambda text: spelled(text, NAMES),
        "rules": voice.words,
        "breaks": lambda text: breaks.read("text", text),
        "accents": lambda text: without_accents(text, str.isascii),
        "Sentences": lambda text: Sentences().add(text),
        "Words": lambda text: Words().add(text),
        "turns": turn_texts,
        "Dia's text": lambda text: tokenize(prepare(text, len(text) * 4)),
        "Dia's pieces": lambda text: read_script(f"[S1] {text}", None, 0, CONFIG, RATE, "auto"),
    }


def seconds(function: Callable[[str], object], text: str) -> float:
    started = time.process_time()
    with suppress(UsageError):
        function(text)
    return time.process_time() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--length", type=int, default=15_625, help="characters of the shorter text")
    length = parser.parse_args().length
    print(f"{length} and {TIMES * length} characters; processor time")
    for name, function in functions().items():
        longest, steepest = (0.0, ""), (0.0, "")
        for unit in UNITS:
            short, long = (seconds(function, (unit * size)[:size]) for size in (length, TIMES * length))
            longest = max(longest, (long, unit))
            if long > LEAST * TIMES:
                steepest = max(steepest, (long / max(short, LEAST), unit))
        most = f", at most {steepest[0]:.1f} times the shorter ({steepest[1]!r})" if steepest[1] else ""
        print(f"{name:14} {longest[0]:6.2f} s ({longest[1]!r}){most}")


if __name__ == "__main__":
    main()
