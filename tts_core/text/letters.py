"""Acronyms, initials and single letters, spelled by the names of their letters."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tts_core.text.abbreviations import ends_sentence

# acronyms with a vowel; those without one are always spelled
# fmt: off
ACRONYMS = frozenset((
    "AI", "AKA", "API", "ATM", "CEO", "CFO", "CIA", "CIO", "CTO", "DIY", "DNA", "EPA", "ESPN", "EU", "FAQ",
    "FBI", "FYI", "GPA", "IBM", "ID", "IOU", "IP", "IQ", "IRS", "MIT", "MRI", "NBA", "NYC", "NYU", "OK",
    "RNA", "UCLA", "UFO", "UI", "UK", "UN", "UPS", "URL", "US", "USA", "USB", "VIP", "YMCA",
))
# words without a vowel that are sounds
SOUNDS = frozenset((
    "brr", "brrr", "hm", "hmm", "mhm", "mm", "mmm", "nth", "pfft", "psst", "sh", "shh", "tsk", "zzz",
))
# fmt: on

_EDGE = r"(?<![\w'’])"
_DOTTED = re.compile(rf"{_EDGE}(?<!\.)(?:[A-Za-z]\.){{2,}}")
_HALF_OF_DAY = re.compile(r"\b([ap]) m\b")
_CAPITALS = re.compile(
    rf"{_EDGE}(?P<word>[A-Z]{{2,}}+)(?:(?P<several>s)|['’](?P<short>[A-Za-z]+))?(?![\w'’])"
)
_INITIAL = re.compile(rf"{_EDGE}([A-HJ-Z])\.(?=\s++[A-Z])")
_LETTER = re.compile(rf"{_EDGE}[B-HJ-Zb-hj-z](?![\w'’])")
_CONSONANTS = re.compile(rf"{_EDGE}[b-df-hj-np-tv-xz]{{2,4}}(?![\w'’])")


def spelled(text: str, names: Mapping[str, str]) -> str:
    """Spell acronyms and single letters; put other words in capitals into small letters.

    names: of the letters a to z. "A" and "I" by themselves are words, and so is a word with a vowel in a text
    of capitals only. Takes linear time.
    """
    shouted = text.isupper() and len(text.split(maxsplit=1)) > 1

    def spell(letters: str) -> str:
        return " ".join(names[letter] for letter in letters.lower())

    def dotted(match: re.Match[str]) -> str:
        stop = "." if ends_sentence(match.string, match.end()) else ""
        return spell(match[0].replace(".", "")) + stop

    def capitals(match: re.Match[str]) -> str:
        word, end = match["word"], match["several"] or ""
        if match["short"]:
            end = f"'{match['short'].lower()}"
        is_spelled = (word in ACRONYMS and not shouted) or not re.search("[AEIOUY]", word)
        return (spell(word) if is_spelled else word.lower()) + end

    text = _DOTTED.sub(dotted, text)
    text = _HALF_OF_DAY.sub(lambda match: spell(f"{match[1]}m"), text)
    text = _CAPITALS.sub(capitals, text)
    text = _INITIAL.sub(lambda match: spell(match[1]), text)
    text = _LETTER.sub(lambda match: spell(match[0]), text)
    return _CONSONANTS.sub(lambda match: match[0] if match[0] in SOUNDS else spell(match[0]), text)
