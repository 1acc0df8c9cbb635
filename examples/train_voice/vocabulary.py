"""Words of the training text: common ones by kind, and SCOWL's lists by frequency.

words/scowl.txt.xz: SCOWL 2020.12.07 (Kevin Atkinson and others, permissive licence,
http://wordlist.aspell.net), its English and American words of sizes 10, 20 and 35 in lower case, without
vulgar words. A word a line; "# level10" and the like begin a list, other lines with # are comments.
"""

from __future__ import annotations

import lzma
from functools import lru_cache
from pathlib import Path

FOLDER = Path(__file__).parent / "words"
LEVELS = {"level10": 0.4, "level20": 0.38, "level35": 0.22}  # about 4,000, 7,000 and 27,000 words


@lru_cache
def scowl() -> dict[str, list[str]]:
    """Read SCOWL's lists: name of LEVELS → words."""
    lists: dict[str, list[str]] = {}
    words: list[str] = []
    for line in lzma.decompress((FOLDER / "scowl.txt.xz").read_bytes()).decode().splitlines():
        if not line.startswith("#"):
            words.append(line)
        elif (name := line.removeprefix("# ")) in LEVELS:
            words = lists.setdefault(name, [])
    return lists


def level(name: str) -> list[str]:
    """Return the words of a level."""
    return scowl()[name]


@lru_cache
def ending(name: str, suffix: str) -> list[str]:
    """Select a level's words with an ending, which mostly determines their kind."""
    return [word for word in level(name) if word.endswith(suffix) and len(word) > len(suffix) + 2]


def kind(name: str) -> list[str]:
    """Read the words of one kind."""
    return (FOLDER / f"{name}.txt").read_text().split()


NOUNS, VERBS, ADJECTIVES, ADVERBS = map(kind, ("nouns", "verbs", "adjectives", "adverbs"))
NAMES, NUMBERS, GLUE = map(kind, ("names", "numbers", "glue"))
PHRASES = (FOLDER / "phrases.txt").read_text().splitlines()
