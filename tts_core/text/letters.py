"""Acronyms, initials and single letters, as the names of their letters."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tts_core.text.abbreviations import NEXT_NAME, NO_NAMES, ends_sentence
from tts_core.text.rewriting import Rule, rewritten

# acronyms with a vowel; those without one are always spelled
# fmt: off
ACRONYMS = frozenset((
    "AI", "AKA", "API", "ATM", "CEO", "CFO", "CIA", "CIO", "CLI", "CO", "CPU", "CTO", "DIY", "DNA", "EPA",
    "ESPN", "ETA", "EU", "EV", "FAQ", "FBI", "FYI", "GPA", "GPU", "IBM", "ICU", "ID", "IDE", "IO", "IOU",
    "IP", "IPO", "IQ", "IRS", "ISBN", "MIT", "MRI", "NBA", "NYC", "NYU", "OK", "OS", "OT", "RNA", "UAE",
    "UCLA", "UFO", "UI", "UK", "UN", "UPS", "URL", "US", "USA", "USB", "VIP", "YMCA",
))
# words without a vowel that are sounds
SOUNDS = frozenset((
    "brr", "brrr", "hm", "hmm", "mhm", "mm", "mmm", "nth", "pfft", "psst", "sh", "shh", "tsk", "zzz",
))
# fmt: on

_EDGE = r"(?<![\w'’])"
_DOTTED = re.compile(rf"{_EDGE}(?<!\.)[A-Za-z](?:\.[A-Za-z])++(?!\w)\.?")
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
        words, name = spell(match[0].replace(".", "")), NEXT_NAME.match(match.string, match.end())
        if match[0][-1] != "." or (name is not None and re.split("['’]", name[1])[0] not in NO_NAMES):
            return words  # as in "U.S. Army"
        return words + ("." if ends_sentence(match.string, match.end()) else "")

    def capitals(match: re.Match[str]) -> str:
        word, end = match["word"], match["several"] or ""
        if match["short"]:
            end = f"'{match['short'].lower()}"
        is_spelled = (word in ACRONYMS and not shouted) or not re.search("[AEIOUY]", word)
        return (spell(word) if is_spelled else word.lower()) + end

    rules: list[Rule] = [
        (_DOTTED, dotted),
        (_HALF_OF_DAY, lambda match: spell(f"{match[1]}m")),
        (_CAPITALS, capitals),
        (_INITIAL, lambda match: spell(match[1])),
        (_LETTER, lambda match: spell(match[0])),
        (_CONSONANTS, lambda match: match[0] if match[0] in SOUNDS else spell(match[0])),
    ]
    return rewritten(text, rules)
