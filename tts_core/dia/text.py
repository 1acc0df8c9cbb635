"""Dia's text before tokenization: turns, text rules, and checks for text that cannot be spoken.

A turn is a speaker's tag, [S1] or [S2], and the words up to the next tag. Nothing is dropped silently:

    no tags, or words before the first one   "[S1] " is added at the start
    [S2] first                               kept; speakers need not alternate either
    a single tag at the end                  kept: Dia's authors advise it, the speech ends cleaner
    a turn without words anywhere else       an error: a slip, or an unfilled template; dropping its tag
                                             would give the next words to another speaker
    [s1], [s2]                               read as [S1], [S2]
    [S3], [ S1 ]                             an error: read as plain text, the tag itself would be spoken
    NUL and other control characters         an error: tags are encoded as the bytes 1 and 2. Tab and
                                             newline are kept, \r\n and \r become \n
    only space and tags                      an error; of a whole text also only punctuation
    more bytes than the model takes          an error that says where to split
    space around the whole text              removed
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tts_core.dia.options import DiaOptions
from tts_core.errors import UsageError
from tts_core.text import breaks
from tts_core.text.alphabet import known_text
from tts_core.text.breaks import Paused
from tts_core.text.checks import PAGE_MARKS, check_characters
from tts_core.text.rules import NO_RULES, TextRules

SPEAKER_TAGS = {b"[S1]": b"\x01", b"[S2]": b"\x02"}  # Dia reads UTF-8 bytes; a tag is one byte
TAGS = tuple(tag.decode() for tag in SPEAKER_TAGS)

_TAG_LIKE = re.compile(r"\[\s*[Ss]\s*\d+\s*\]")
_SMALL_TAG = re.compile(r"\[s([12])\]")
_SENTENCE_END = re.compile(r"(?<![.!?…。！？])[.!?…。！？]++[\"'”’»)]*+(?=\s)")
_SPACE = re.compile(r"\s+")
_TURN_END = "the end of a turn"
_NO_WORDS = "{}: there are no words in it; write the words to speak, after a tag if you like"
_PUNCTUATION = ("Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps")
_SILENT = ("Cc", "Cf", "Cs", "Zl", "Zp", "Zs")  # Unicode categories: control, format, surrogate, space


@dataclass(frozen=True)
class Turn:
    """One speaker's turn: `text[start:stop]`, with its tag; `speaker` is None before the first tag."""

    speaker: str | None
    start: int
    stop: int
    words: str


def turns(text: str) -> list[Turn]:
    """Split a text into turns, in order; joined, they equal the text.

    Raises UsageError naming an unknown tag, such as [S3].
    """
    check_speakers("text", text)
    tags = list(_TAG_LIKE.finditer(text))
    starts = [tag.start() for tag in tags]
    found = [
        Turn(tag.group()[1:-1].upper(), start, stop, text[tag.end() : stop].strip())
        for tag, start, stop in zip(tags, starts, [*starts, len(text)][1:], strict=True)
    ]
    lead = text[: starts[0]] if tags else text
    return [Turn(None, 0, len(lead), lead.strip()), *found] if lead else found


def check_speakers(what: str, text: str) -> None:
    """Raise UsageError for the tag of a speaker that Dia lacks, with its place. what: the text's name."""
    for tag in _TAG_LIKE.finditer(text):
        if tag.group().upper() not in TAGS:
            raise UsageError(
                f"{what}: {tag.group()} is not a speaker; use {' and '.join(TAGS)} (at character "
                f"{tag.start() + 1})"
            )


def prepare(
    text: str, limit: int | None, *, transcript: str | None = None, rules: TextRules = NO_RULES
) -> str:
    """Return the exact text to tokenize, by the rules at the head of this file and those of the folder.

    limit: bytes that the model takes, a tag counting as one; None does not check the length.
    transcript: words of the reference, added before the text; words without a tag continue its last turn.
    rules: for the text; the transcript stays as it is.
    Raises UsageError; the message never quotes the text.
    """
    words = rewritten("text", text, rules)
    whole = with_tag(words) if transcript is None else f"{with_tag(clean('transcript', transcript))} {words}"
    check_turns(whole)
    if limit is not None:
        check_bytes(text, words, whole, limit)
    return whole


def rewritten(what: str, text: str, rules: TextRules) -> str:
    """Clean a text and apply text rules to every turn. what: its name in messages.

    Raises UsageError as `clean` does, also if the rules leave no words.
    """
    return _by_turns(what, text, rules, lambda words: rules.ended(rules.words(words)))


def ended(script: str, rules: TextRules) -> str:
    """Add the end mark of the rules to a prepared text whose last turn has none."""
    last = turns(script)[-1]
    return script[: last.start] + rules.ended(script[last.start :]) if speakable(last.words) else script


def rewritten_transcript(text: str, rules: TextRules) -> str:
    """Clean a transcript and apply text rules without end marks, as the text may continue its sentence."""
    return _by_turns("transcript", text, rules, rules.words)


def _by_turns(what: str, text: str, rules: TextRules, change: Callable[[str], str]) -> str:
    words = clean(what, text)
    if rules == NO_RULES:
        return words
    said = [(turn.speaker, change(turn.words)) for turn in turns(words)]
    return clean(what, " ".join(line if speaker is None else f"[{speaker}] {line}" for speaker, line in said))


def with_tag(words: str) -> str:
    """Add the first speaker's tag at the start of cleaned words that have none."""
    return words if words.startswith(TAGS) else f"{TAGS[0]} {words}"


def check_bytes(text: str, words: str, whole: str, limit: int) -> None:
    """Raise UsageError that says where to split if `whole` has more than `limit` bytes.

    text: as given; words: as returned by `rewritten`, the end of `whole`.
    """
    if len(tokenize(whole)) > limit:
        raise UsageError(_too_long(text, words, whole.removesuffix(words), limit))


def clean(what: str, text: str) -> str:
    """Strip a text, normalize its line ends and capitalize its tags. what: its name in messages.

    Raises UsageError for control characters or a text without words; the message never quotes the text.
    """
    check_characters(what, text)
    words = _SMALL_TAG.sub(r"[S\1]", _plain_lines(text)).strip()
    if not speakable(_TAG_LIKE.sub("", words)):
        raise UsageError(_NO_WORDS.format(what))
    return words


def _plain_lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n").translate(PAGE_MARKS)


def has_words(text: str) -> bool:
    """Return True if a text has more than tags, spaces and punctuation."""
    silent = (*_SILENT, *_PUNCTUATION)
    return any(unicodedata.category(char) not in silent for char in _TAG_LIKE.sub("", text))


def paused(what: str, text: str) -> Paused:
    """Cut a text at its pauses. what: its name in messages.

    Raises UsageError for SSML, for a pause that cannot be read, and for a text without words.
    """
    found = breaks.read(what, text, spoken=has_words)
    check_speakers(what, found.blanked)
    if not has_words(clean(what, found.blanked)):
        raise UsageError(_NO_WORDS.format(what))
    return found


def speakable(words: str) -> bool:
    """Return True if a text has more than spaces and invisible marks."""
    return any(unicodedata.category(char) not in _SILENT for char in words)


def check_turns(whole: str) -> None:
    """Raise UsageError for a turn without words, except a tag at the end."""
    *before, _ = every = turns(whole)
    empty = next((offset for offset, turn in enumerate(before, start=1) if not speakable(turn.words)), None)
    if empty is not None:
        raise UsageError(
            f"text: turn {empty} of {len(every)}, [{every[empty - 1].speaker}], has no words; "
            "write them or remove its tag"
        )


def _too_long(text: str, words: str, front: str, limit: int) -> str:
    size, given = len(tokenize(front + words)), len(tokenize(front))
    if given + 4 > limit:  # no room for one character
        return f"transcript: {given} bytes, the model takes {limit} with the text; use a shorter reference"
    split, why = _split_point(front + words, len(front), limit)
    speaker = turns((front + words)[:split])[-1].speaker
    rest = "" if why == _TURN_END else f", and begin the rest with [{speaker}]"
    counted = f"{size} bytes" + (f", {given} of them the transcript's" if given > len(b"\x01 ") else "")
    if clean("text", text) == words:
        at = str(_offset(text, split - len(front)))
    else:
        at = f"{split - len(front)} of the text as it is read"
    where = f"after character {at} ({why}){rest}"
    return f"text: {counted}, the model takes {limit}; split it {where}"


def _split_point(whole: str, floor: int, limit: int) -> tuple[int, str]:
    """Find the last cut that fits and leaves words on both sides: after a turn or sentence, else a word."""
    untagged = _TAG_LIKE.sub(lambda tag: " " * len(tag.group()), whole)
    first = next(offset for offset in range(floor, len(whole)) if speakable(untagged[offset]))
    last = next(offset for offset in reversed(range(floor, len(whole))) if speakable(untagged[offset]))
    window = whole[
        : 4 * limit + 4
    ]  # a tag of four characters counts as one byte; the tag at its end is whole
    tags = list(_TAG_LIKE.finditer(window))
    inside_tags = {offset for tag in tags for offset in range(tag.start() + 1, tag.end())}
    anywhere = [offset for offset in range(first + 1, min(last, 4 * limit) + 1) if offset not in inside_tags]
    fitting = anywhere[: bisect_right(anywhere, limit, key=lambda offset: len(tokenize(window[:offset])))]
    if not fitting:
        return first + 1, "its first character"
    ends = [(tag.start(), _TURN_END) for tag in tags]
    ends += [(end.end(), "the end of a sentence") for end in _SENTENCE_END.finditer(window)]
    words = [(space.start(), "the end of a word") for space in _SPACE.finditer(window)]
    for stops in (ends, words, [(fitting[-1], "inside a word")]):
        there = [(offset, why) for offset, why in stops if first < offset <= fitting[-1]]
        if there:
            offset, why = max(there)
            return offset, _TURN_END if whole[offset:].lstrip().startswith(TAGS) else why
    raise AssertionError("the last of these places always fits")


def _offset(text: str, clean_offset: int) -> int:
    """Map a position in the cleaned text to one in the text as given."""
    offsets = [
        offset
        for offset, char in enumerate(text)
        if not (char == "\r" and text[offset + 1 : offset + 2] == "\n")
    ]
    plain = _plain_lines(text)
    before = len(plain) - len(plain.lstrip())
    return offsets[before + clean_offset - 1] + 1


def tokenize(text: str) -> np.ndarray:
    """Encode a text as byte ids, (S,) int32, with [S1] and [S2] replaced; no padding, cutting or normalizing.

    Source: nari-labs/dia model.py@876125e, without its cut and its padding to 1,024.
    """
    data = text.encode("utf-8")
    for tag, byte in SPEAKER_TAGS.items():
        data = data.replace(tag, byte)
    return np.frombuffer(data, dtype=np.uint8).astype(np.int32)


def words_of(tokens: np.ndarray) -> str:
    """Decode ids of `tokenize`, (S,), to the words, with a space in place of each speaker's tag."""
    data = bytes(tokens.astype(np.uint8))
    for byte in SPEAKER_TAGS.values():
        data = data.replace(byte, b" ")
    return data.decode("utf-8")


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
