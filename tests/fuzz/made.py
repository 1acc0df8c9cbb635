"""Cases made from a seed: texts, JSON values, bytes and numbers, as people and their mistakes write them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from unicodedata import category

import pytest

from tts_core.errors import SpeechError
from tts_core.printable import LONGEST

HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
WORDS = [
    *["Hello", "world", "it's", "Dr.", "e.g.", "U.S.", "3.50", "$4.99", "1,234,567", "2026-11-22", "5pm"],
    *["10^100", "1/2", "½", "²", "...", "—", "?!"],
    *[
        "[S1]",
        "[S2]",
        "[S3]",
        "[S1",
        "(laughs)",
        "(pause)",
        "[pause 2s]",
        "\n",
        "\n\n",
        "\t",
        "&amp;",
        "&",
        "<",
    ],
    *["<speak>", "</speak>", '<break time="1s"/>', "<break", "<|endoftext|>", "<|startoftext|>", "a@b.org"],
    *["😀", "👨‍👩‍👧", "日本語", "naïve", "ÄÖÜ", "مرحبا", "https://example.org/a?b=c"],
    *["\u202e", "\u200b", "\u00ad", "\ufeff", "e\u0301", "\x00", "\x1b[31m", "\ud800"],
    *["9" * 400, "a" * 300, "'" * 40, "I" * 50],
]
RUNS = ["a", " ", "\n", "1", ".", "[", "-", "\u0301", "<"]
ODD_NUMBERS = [0, 1, -1, 2, 3, 7, 255, 256, 257, 1000, 2**31, 2**63, 10**30, 0.5, -0.0, 1e-300, 1e300]
ODD_VALUES = [None, True, False, "", "x", "mlx", "\x1b", [], {}, [1], [[]], {"a": 1}, ["a", 2], [0] * 300]


def cases(default: int, slow: int) -> pytest.MarkDecorator:
    """Parametrize `seeds`: a first range in every run, the much larger rest where slow tests run."""
    rest = pytest.param(range(default, slow), marks=pytest.mark.slow)
    return pytest.mark.parametrize("seeds", [range(default), rest], ids=["some", "many"])


@contextmanager
def clear(seed: int, case: object) -> Iterator[list[SpeechError]]:
    """Whatever the block raises must be one of our errors, in one bounded line that is not empty."""
    refused: list[SpeechError] = []
    try:
        yield refused
    except SpeechError as error:
        check_line(str(error))
        refused.append(error)
    except Exception as error:
        error.add_note(f"seed {seed}: {case!r:.2000}")
        raise


def check_line(text: str) -> None:
    assert text
    assert len(text) <= LONGEST
    assert not [character for character in text if category(character) in HIDDEN]


def text(chance: random.Random) -> str:
    """Words, odd words, runs of one character and any characters, with and without spaces."""
    made = []
    for _ in range(chance.choice([0, 1, 2, 5, 20, 60])):
        kind = chance.random()
        if kind < 0.6:
            made.append(chance.choice(WORDS))
        elif kind < 0.8:
            made.append("".join(chance.choice("abcdefghij ,.") for _ in range(chance.randrange(30))))
        elif kind < 0.9:
            made.append(chr(chance.choice([chance.randrange(0x250), chance.randrange(0x110000)])))
        else:
            made.append(chance.choice(RUNS) * chance.choice([2, 50, 400]))
    return chance.choice([" ", " ", ""]).join(made)


def number(chance: random.Random) -> int | float:
    return chance.choice(ODD_NUMBERS) if chance.random() < 0.7 else chance.randrange(-10, 5000)


def value(chance: random.Random) -> object:
    return number(chance) if chance.random() < 0.6 else deepcopy(chance.choice(ODD_VALUES))


def changed_json(chance: random.Random, content: object) -> object:
    """A copy with one to three entries changed, added or taken away, anywhere in it."""
    content = json.loads(json.dumps(content))
    for _ in range(chance.choice([1, 1, 2, 3])):
        places = list(_containers(content))
        if not places:
            return value(chance)
        place = chance.choice(places)
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        kind = chance.random()
        if kind < 0.7 and keys:
            place[chance.choice(keys)] = value(chance)
        elif kind < 0.85 and keys:
            del place[chance.choice(keys)]
        elif isinstance(place, dict):
            place[chance.choice(["more", "", "hidden_size", "\x1b", "quantization"])] = value(chance)
        else:
            place.insert(chance.randrange(len(place) + 1), value(chance))
    return content


def _containers(content: object) -> Iterator[dict | list]:
    if isinstance(content, dict | list):
        yield content
        for inner in content.values() if isinstance(content, dict) else content:
            yield from _containers(inner)


def changed_bytes(chance: random.Random, content: bytes) -> bytes:
    """Bits flipped, pieces cut, doubled or replaced."""
    made = bytearray(content)
    for _ in range(chance.choice([1, 1, 2, 5, 20])):
        if not made:
            return b""
        at = chance.randrange(len(made))
        end = min(len(made), at + chance.choice([1, 4, 30, 1000]))
        edit: Callable[[], None] = chance.choice(
            [
                lambda at=at: made.__setitem__(at, made[at] ^ 1 << chance.randrange(8)),
                lambda at=at, end=end: made.__delitem__(slice(at, end)),
                lambda at=at, end=end: made.__setitem__(slice(at, at), made[at:end]),
                lambda at=at, end=end: made.__setitem__(slice(at, end), chance.randbytes(end - at)),
                lambda at=at: made.__setitem__(slice(at, at + 1), b"%d" % chance.choice([0, 1, 255, 10**9])),
            ]
        )
        edit()
    return bytes(made)
