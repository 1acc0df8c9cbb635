"""Alignment of phones with letters: monotone, with the fewest unlikely pairs."""

from __future__ import annotations

from functools import lru_cache

from examples.train_voice.flite import PHONES

LETTERS = {
    "b": "b", "ch": "ct", "d": "d", "dh": "t", "f": "fpg", "g": "gx", "hh": "hw", "jh": "jgd", "k": "kcqx",
    "l": "l", "m": "m", "n": "n", "ng": "n", "p": "p", "r": "r", "s": "scxz", "sh": "scti", "t": "td",
    "th": "t", "v": "vf", "w": "wuoq", "y": "yuiej", "z": "zsx", "zh": "szg", "er": "eiuoary",
}  # fmt: skip
VOWELS = "aeiouy"
UNLIKELY, SHARED, SILENT, SILENT_VOWEL = 3.0, 0.8, 0.5, 0.3


def likely(phone: str, letter: str) -> bool:
    return letter in LETTERS.get(phone, VOWELS)


@lru_cache(maxsize=50_000)
def letters_of(word: str, phones: tuple[int, ...]) -> tuple[int, ...]:
    """Find every phone's letter in a word, in ascending order. word: lower case, not empty."""
    names = [PHONES[phone] for phone in phones]
    skipped = [0.0]  # cost of skipping the first n letters
    for letter in word:
        skipped.append(
            skipped[-1] + (0.0 if not letter.isalpha() else SILENT_VOWEL if letter in VOWELS else SILENT)
        )
    best: list[list[tuple[float, int]]] = []
    for number, name in enumerate(names):
        row = []
        for index, letter in enumerate(word):
            own = 0.0 if likely(name, letter) else UNLIKELY
            if number == 0:
                row.append((own + skipped[index], 0))
                continue
            costs = [
                (
                    best[-1][before][0]
                    + (skipped[index] - skipped[before + 1] if before < index else SHARED),
                    before,
                )
                for before in range(index + 1)
            ]
            least, before = min(costs)
            row.append((own + least, before))
        best.append(row)
    ends = [cost + skipped[-1] - skipped[index + 1] for index, (cost, _) in enumerate(best[-1])]
    index, found = ends.index(min(ends)), []
    for row in reversed(best):
        found.append(index)
        index = row[index][1]
    return tuple(reversed(found))
