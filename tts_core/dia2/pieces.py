"""A script in pieces that fit Dia2's context, each ending at a turn or a sentence where possible."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tts_core.dia2.config import Dia2Config
from tts_core.dia2.machine import MAX_PADDING, longest_steps
from tts_core.dia2.script import SPEAKERS, Entry, Reader
from tts_core.errors import UsageError

_SENTENCE_END = re.compile(r"[.!?…][\"'”’»)]*\Z")


@dataclass(frozen=True)
class Dia2Piece:
    """Part of a script. text: for captions, with tags where speakers change."""

    entries: tuple[Entry, ...]
    text: str


def room(config: Dia2Config, initial_padding: int) -> int:
    """Count the steps for entries, so that a run surely speaks the last one to its end."""
    return config.max_context_steps - config.longest_delay - MAX_PADDING - initial_padding - 1


def cut(reader: Reader, entries: Sequence[Entry], most: int) -> list[Dia2Piece]:
    """Cut a script into pieces of at most `most` steps: after a turn, else a sentence, else a word.

    A piece that begins inside a turn gets the turn's tag. Raises UsageError for an entry that fits nowhere.
    """
    check_each(entries, most)
    pieces, start, speaker = [], 0, ""
    while start < len(entries):
        stop, total = start, 0
        while stop < len(entries) and total + longest_steps(entries[stop]) <= most:
            total += longest_steps(entries[stop])
            stop += 1
        if stop < len(entries):
            stop = _best_stop(reader, entries, start, stop)
        part = list(entries[start:stop])
        first = next((index for index, entry in enumerate(part) if entry.tokens), None)
        if first is not None:
            part[first] = with_tag(reader, speaker, part[first])
        pieces.append(Dia2Piece(tuple(part), written(reader, part)))
        speaker = next((tag for entry in reversed(part) if (tag := tag_of(reader, entry))), speaker)
        start = stop
    return pieces


def check_each(entries: Iterable[Entry], most: int) -> None:
    """Raise UsageError for an entry that is longer than `most` steps."""
    if any(longest_steps(entry) > most for entry in entries):
        raise UsageError("text: a break or a word is longer than the model's two minutes; shorten it")


def with_tag(reader: Reader, speaker: str, entry: Entry) -> Entry:
    """Put the tag of the turn that goes on before a word that begins a piece. A word with a tag stays.

    speaker: empty before the first turn.
    """
    if not speaker or not entry.tokens or tag_of(reader, entry):
        return entry
    tokens = tuple(reader.tokenizer.encode(f"{speaker} {entry.text}"))
    return Entry(tokens, entry.text, len(tokens))


def tag_of(reader: Reader, entry: Entry) -> str:
    """Return the tag of the speaker whose turn an entry begins; empty if none begins."""
    tags = dict(zip(reader.speakers, SPEAKERS, strict=True))
    known = [tags[token] for token in entry.tokens[:2] if token in tags]
    return known[-1] if known else ""


def ends_sentence(entry: Entry) -> bool:
    """True for the last word of a sentence."""
    return _SENTENCE_END.search(entry.text) is not None


def written(reader: Reader, entries: Iterable[Entry]) -> str:
    """Write entries as text for captions, with tags where speakers change."""
    words = [f"{tag_of(reader, entry)} {entry.text}".strip() for entry in entries if entry.tokens]
    return " ".join(words)


def _best_stop(reader: Reader, entries: Sequence[Entry], start: int, stop: int) -> int:
    """Find the last place in the second half of [start, stop] that ends a turn, else a sentence."""
    least = start + (stop - start) // 2
    stops = range(stop, least, -1)
    turns = (stop for stop in stops if tag_of(reader, entries[stop]))
    sentences = (stop for stop in stops if ends_sentence(entries[stop - 1]))
    return next(turns, None) or next(sentences, None) or stop
