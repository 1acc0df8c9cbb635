"""Words of the training text: common ones by kind, and SCOWL's lists by frequency.

words/level*.txt: SCOWL 2020.12.07 (Kevin Atkinson and others, permissive licence,
http://wordlist.aspell.net), its English and American words of sizes 10, 20 and 35 in lower case, without
vulgar words.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

FOLDER = Path(__file__).parent / "words"
LEVELS = {"level10": 0.4, "level20": 0.38, "level35": 0.22}  # about 4,000, 7,000 and 27,000 words


@lru_cache
def level(name: str) -> list[str]:
    """Read a word list."""
    return (FOLDER / f"{name}.txt").read_text().split()


@lru_cache
def ending(name: str, suffix: str) -> list[str]:
    """Select a list's words with an ending, which mostly determines their kind."""
    return [word for word in level(name) if word.endswith(suffix) and len(word) > len(suffix) + 2]


NOUNS, VERBS, ADJECTIVES, ADVERBS = map(level, ("nouns", "verbs", "adjectives", "adverbs"))
NAMES, NUMBERS, GLUE = map(level, ("names", "numbers", "glue"))
PHRASES = (FOLDER / "phrases.txt").read_text().splitlines()
