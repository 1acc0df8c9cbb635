"""The text rules that hold for a request to Dia, and what to point out to its caller."""

from __future__ import annotations

import re

from tts_core.dia.options import DiaOptions
from tts_core.dia.text import TAGS
from tts_core.errors import UsageError
from tts_core.text.alphabet import known_text
from tts_core.text.rules import NO_RULES, TextRules

ADVISED_SECONDS = 5.0  # of speech at least, by Dia's authors
_TAG = re.compile(r"\[[Ss][12]\]")
_OPENING_TAG = re.compile(
    r"(?:\s|\[\s*+pause[^\[\]]*+\]|<[^<>]*+>)*+\[[Ss][12]\]", re.IGNORECASE
)  # after pauses
_CLOSING_TAG = re.compile(r"\[[Ss][12]\]\s*+\Z")


def choose_rules(rules: TextRules, options: DiaOptions) -> TextRules:
    """Return the folder's rules, or none for a text that is read as written.

    Raises UsageError for skip_unknown without an alphabet.
    """
    if options.skip_unknown and (options.as_written or rules.alphabet is None):
        why = "as_written reads every character" if options.as_written else "this model has no alphabet"
        raise UsageError(f"skip_unknown: {why}; leave it out")
    return NO_RULES if options.as_written else rules


def readable(where: str, text: str, rules: TextRules, options: DiaOptions) -> str:
    """Return the text without characters outside the alphabet.

    Raises UsageError for them unless skip_unknown is set.
    """
    return known_text(where, text, rules.knows, skip=options.skip_unknown)


def notes(text: str, seconds: float, rules: TextRules, *, continues: bool) -> tuple[str, ...]:
    """Remarks for the caller, a line each: a tag that was added before others, the authors' advice for short
    texts.

    seconds: expected.
    rules: of the folder; those that add end marks are made for short texts.
    continues: the text goes on after a transcript.
    """
    found = []
    if not continues and _TAG.search(text) and not _OPENING_TAG.match(text):
        found.append(f"text: no speaker's tag at its start, {TAGS[0]} speaks it")
    if seconds < ADVISED_SECONDS and not rules.ends:
        advice = f"text: about {seconds:.1f} s of speech; Dia's authors advise 5 to 20 s"
        if not _CLOSING_TAG.search(text):
            advice += ", and the tag of the second-to-last speaker at the end"
        found.append(advice)
    return tuple(found)
