"""Text rules of a network: changes to a text before the network reads it, in `text.json` beside the weights.

A folder without the file has no rules: its network reads any text as it is written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from tts_core.config import exact_fields, mapping
from tts_core.errors import CheckpointError
from tts_core.files.json_object import parse_json
from tts_core.text.alphabet import is_invisible
from tts_core.text.letters import spelled
from tts_core.text.markdown import plain
from tts_core.text.rewriting import rewritten, without
from tts_core.text.spoken import FRACTIONS, MARKS, SIGNS, spoken

FILE = "text.json"
LANGUAGES = ("en",)
LONGEST = 64  # characters that are written in place of one
LATER = {"shortest_anchor": 0}  # fields that older files lack
MOST_CHARACTERS = 1 << 16  # of an alphabet

_ITEM = re.compile(r"(?:(?P<bullet>[-*•–—])|(?P<number>\d{1,3})[.)])\s++")  # opens an item of a list
_SPACED_HYPHEN = re.compile(r"(?<=[^\W\d_]\s)-(?=\s[^\W\d_])")
_QUOTE = re.compile(r"(?<![^\W\d_])'|'(?![^\W\d_])")  # an apostrophe is between letters
_CLOSERS = "\"'”’»)]"
_PAUSES = ",;:-–— "


@dataclass(frozen=True)
class TextRules:
    """Rules in the order in which they apply. The defaults change nothing.

    spoken: language whose numbers and abbreviations are put into words, or None.
    letters: names of the letters a to z, by which acronyms are spelled; empty: they stay.
    replacements: character → what is read in its place.
    alphabet: every other character that the network has learned; None: any.
    pauses, ends: marks of a pause and of an end. Runs of marks become the strongest one; the first mark of
    `ends` is added to turns, paragraphs and items of lists without one, and a sentence inside a turn begins
    with a capital. Empty: marks stay.
    shortest_anchor: characters that a spoken piece needs for others to continue it; after a shorter one the
    network may not end.
    Raises CheckpointError for rules that write characters outside the alphabet.
    """

    spoken: str | None = None
    letters: Mapping[str, str] = field(default_factory=dict)
    replacements: Mapping[str, str] = field(default_factory=dict)
    alphabet: str | None = None
    pauses: str = ""
    ends: str = ""
    shortest_anchor: int = 0

    def __post_init__(self) -> None:
        if self.spoken is not None and self.spoken not in LANGUAGES:
            raise CheckpointError(f"{FILE}: spoken is {self.spoken!r}; use {' or '.join(LANGUAGES)}, or null")
        texts = (*self.letters.values(), *self.replacements.values(), self.pauses, self.ends)
        if any(len(text) > LONGEST for text in texts) or len(self.alphabet or "") > MOST_CHARACTERS:
            raise CheckpointError(
                f"{FILE}: a name, replacement or list of marks has more than {LONGEST} characters, "
                f"or the alphabet more than {MOST_CHARACTERS}"
            )
        if self.letters and sorted(self.letters) != [chr(code) for code in range(ord("a"), ord("z") + 1)]:
            raise CheckpointError(f"{FILE}: letters: give a name for each of a to z, or none")
        if long := [char for char in self.replacements if len(char) != 1]:
            raise CheckpointError(f"{FILE}: replacements: {long[0]!r} is not one character")
        if self.alphabet is not None:
            written = "".join((*self.letters.values(), *self.replacements.values(), self.pauses, self.ends))
            lost = {char for char in written if char not in self.alphabet and not char.isspace()}
            if self.spoken:
                lost |= {char for char in SIGNS if not self.knows(char)}
            if lost:
                raise CheckpointError(f"{FILE}: {' '.join(sorted(lost))}: not in the alphabet")

    def knows(self, char: str) -> bool:
        """Decide whether a character can be read: as it is, as white space, replaced, or in a number."""
        if self.alphabet is None or char in self.alphabet or char in self.replacements or char.isspace():
            return True
        return self.spoken is not None and (char.isdecimal() or char in FRACTIONS)

    def words(self, text: str) -> str:
        """Rewrite the words of one speaker, without an end mark; unknown characters are left out.

        Applied again it changes nothing.
        """
        if self.alphabet is not None:
            text = "".join(char for char in text if not is_invisible(char))
            text = without(text, {char for char in text if not self.knows(char)})
        if self.ends:
            text = self._paragraphs(plain(text))
        if self.spoken:
            text = rewritten(text, MARKS)
        text = without(text, [char for char, read in self.replacements.items() if not read])
        if self.spoken:
            text = spoken(text)
        if self.pauses:
            text = _SPACED_HYPHEN.sub(self.pauses[0], text)
        if self.letters:
            text = spelled(text, self.letters)
        text = text.translate(self._replaced)
        if self.alphabet is not None:
            text = _QUOTE.sub("", text)
        if self.pauses or self.ends:
            text = self._marks.sub(self._strongest, " ".join(text.split()))
            text = text.lstrip(self.pauses + self.ends + " ").rstrip()
        if self.ends:
            text = self._starts.sub(lambda match: match[0].upper(), text)
        return text

    def ended(self, words: str) -> str:
        """Add the end mark, in place of marks of a pause, to words that have none."""
        if not self.ends or words.rstrip(_CLOSERS + " ").endswith((*self.ends, "…")):
            return words
        bare = words.rstrip(_PAUSES)
        return f"{bare}{self.ends[0]}" if bare else words

    def _paragraphs(self, text: str) -> str:
        """Join lines, with an end mark before an empty line and around an item of a list; omit bullets.

        A line after an item goes on in it unless it begins with a capital.
        """
        lines, in_item = [""], False
        for line in text.splitlines():
            item = _ITEM.match(line := line.strip())
            if item or not line or (in_item and line[0].isupper()):
                lines[-1] = self.ended(lines[-1])
                in_item = False
            in_item = in_item or item is not None
            if item:
                number = "" if item["bullet"] else f"{item['number']}, "
                line = f"{number}{line[item.end() :]}"
            if line:
                lines.append(line)
        return " ".join(line for line in lines if line)

    @cached_property
    def _replaced(self) -> dict[int, str]:
        return {ord(char): text for char, text in self.replacements.items()}

    @cached_property
    def _marks(self) -> re.Pattern[str]:
        any_of = f"[{re.escape(self.pauses + self.ends)}]"
        return re.compile(rf" ?{any_of}(?: ?{any_of})*+ ?")

    @cached_property
    def _starts(self) -> re.Pattern[str]:
        """Small letters that begin a sentence inside a text, unless a mark follows: "A." is a letter."""
        marks = re.escape(self.pauses + self.ends)
        return re.compile(rf"(?<=[{re.escape(self.ends)}] )[a-z](?![{marks}]|$)")

    def _strongest(self, match: re.Match[str]) -> str:
        ends = [mark for mark in match[0] if mark in self.ends]
        return f"{ends[-1] if ends else match[0].strip()[0]} "

    def to_dict(self) -> dict[str, Any]:
        """For JSON, as `read_rules` takes it."""
        return asdict(self)


NO_RULES = TextRules()


def read_rules(documents: Mapping[str, str]) -> TextRules:
    """Read the rules from a part's documents, by name; NO_RULES if there are none.

    Raises CheckpointError for a file that is not JSON, or not of exactly these fields but LATER ones.
    """
    if FILE not in documents:
        return NO_RULES
    given = exact_fields(TextRules, LATER | parse_json(documents[FILE], FILE), FILE)
    for name in ("letters", "replacements"):
        table = mapping(given[name], f"{FILE}: {name}")
        if not all(isinstance(value, str) for value in table.values()):
            raise CheckpointError(f"{FILE}: {name}: not every value is text")
    if not all(isinstance(given[name], str) for name in ("pauses", "ends")):
        raise CheckpointError(f"{FILE}: pauses and ends must be text")
    if not all(isinstance(given[name], str | None) for name in ("alphabet", "spoken")):
        raise CheckpointError(f"{FILE}: alphabet and spoken must be text or null")
    shortest = given["shortest_anchor"]
    if isinstance(shortest, bool) or not isinstance(shortest, int) or shortest < 0:
        raise CheckpointError(f"{FILE}: shortest_anchor must be a whole number >= 0")
    return TextRules(**given)
