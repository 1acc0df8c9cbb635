"""Cut a long script into pieces that Dia speaks well, and choose the pieces that set the voices (anchors).

A piece begins with a tag; one that starts in the middle of a turn repeats the turn's tag. It is spoken after
the recordings that set its voices: the caller's reference, if any, and its anchors, which are the first
pieces with a speaker that the reference lacks. If both speakers are heard early, only the first piece is an
anchor; otherwise there are two. Pieces depend on anchors, never on each other.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from types import MappingProxyType

import numpy as np

from tts_core.dia.config import DiaConfig
from tts_core.dia.options import PieceSeconds
from tts_core.dia.text import (
    TAGS,
    Turn,
    check_bytes,
    check_turns,
    clean,
    ended,
    paused,
    prepare,
    rewritten,
    speakable,
    tokenize,
    turns,
    with_tag,
)
from tts_core.errors import UsageError
from tts_core.text.duration import expected_seconds
from tts_core.text.pace import CHARACTERS_PER_SECOND
from tts_core.text.rules import NO_RULES, TextRules
from tts_core.text.sentences import CLAUSE, LOOK_BEHIND, SENTENCE, WORD, stops

AUTO = 4  # pieces per window of frames: anchors, a piece, and margin for slow speech
WHOLE = 4 / 3  # of a piece: a text up to this length stays whole
ANCHOR = 0.6  # of a piece: limit of each of two anchors
AIM = 2 / 3  # of a piece: the wanted length; the rest leaves room for longer sentences
TEXTS = 2.5  # pieces whose bytes fit the text window
VOICE = 5.0  # seconds of speech that define a voice well

_TAG = re.compile(r"\[S[12]\]")
_TURN = -1  # rank of the end of a turn, better than SENTENCE
_WORSE = {_TURN: 0.0, SENTENCE: 0.2, CLAUSE: 0.7, WORD: 1.2}  # cost, in relative size error


@dataclass(frozen=True)
class DiaPiece:
    """A piece of a script.

    text: with its tag.
    anchors: indices of the pieces that it is spoken after.
    said: the spoken part of `text`, None for all of it; a transcript before it is only read.
    before, after: seconds of silence that the text asks for.
    """

    text: str
    anchors: tuple[int, ...] = ()
    said: str | None = None
    before: float | None = None
    after: float | None = None

    @property
    def spoken(self) -> str:
        """Return the text as it is spoken."""
        return self.text if self.said is None else self.said

    @cached_property
    def tokens(self) -> np.ndarray:
        """Ids of the text, (S,) int32."""
        return tokenize(self.text)

    @cached_property
    def seconds(self) -> float:
        """Estimated duration of the speech in seconds."""
        return seconds(self.spoken)


@dataclass(frozen=True)
class Size:
    """Length limits of a piece: characters as spoken, bytes as read by the model."""

    characters: int
    bytes: int

    def times(self, factor: float) -> Size:
        """Scale both limits by a factor."""
        return Size(int(factor * self.characters), int(factor * self.bytes))

    def holds(self, text: str) -> bool:
        """Return True if a text is within both limits."""
        return characters(text) <= self.characters and len(tokenize(text)) <= self.bytes

    def count(self, text: str) -> int:
        """Return the smallest number of pieces of this size that a text needs."""
        return max(1, -(-characters(text) // self.characters), -(-len(tokenize(text)) // self.bytes))


def characters(text: str) -> int:
    """Count characters; a tag counts as one, for the pause at a change of speakers."""
    return len(text) - 3 * len(_TAG.findall(text))


def seconds(text: str) -> float:
    """Estimate the duration of a text with tags in seconds."""
    return expected_seconds(_TAG.sub("", text), len(_TAG.findall(text)))


def read(
    text: str,
    transcript: str | None,
    prompt_frames: int,
    config: DiaConfig,
    frame_rate: float,
    piece_seconds: PieceSeconds,
    rules: TextRules = NO_RULES,
) -> list[DiaPiece]:
    """Cut a text into pieces; a text spoken at once is a single piece that includes the transcript. A piece
    ends at every pause that the text asks for.

    transcript, prompt_frames: of the reference.
    frame_rate: of the codec, in Hz.
    rules: for the text.
    Raises UsageError for a text that cannot be spoken, or does not fit after this reference.
    """
    window = config.max_frames / frame_rate  # seconds
    seconds = _wanted(piece_seconds, window)
    given = paused("text", text)
    parts = [rewritten("text", part, rules) for part in given.parts]
    words = " ".join(parts)
    script, before, said = with_tag(words), "", ""
    lead, *_, tail = (silence or None for silence in given.silences)
    whole = DiaPiece(script, before=lead, after=tail)
    if transcript is not None:
        before, said = with_tag(clean("transcript", transcript)), bare(transcript)
        whole = replace(whole, text=f"{before} {words}", said=words)
    check_turns(whole.text)
    room = Size(
        int((window - prompt_frames / frame_rate) * CHARACTERS_PER_SECOND),
        config.max_text_bytes - len(tokenize(said)) - 4,  # spaces between, a single tag at the end
    )
    if len(parts) == 1:
        longest = min(seconds * CHARACTERS_PER_SECOND * WHOLE, room.characters)
        if piece_seconds is None:
            check_bytes(text, words, whole.text, config.max_text_bytes)
            return [whole]
        if characters(script) <= longest and len(whole.tokens) <= config.max_text_bytes:
            return [whole]
    check_turns(script)
    most = Size(int(min(seconds * CHARACTERS_PER_SECOND, room.characters / AUTO)), int(room.bytes / TEXTS))
    if min(most.characters, most.bytes) < CHARACTERS_PER_SECOND:
        if room.bytes < 1:
            check_bytes(text, words, whole.text, config.max_text_bytes)
        raise UsageError(
            f"prompt: {prompt_frames / frame_rate:.1f} s and {len(tokenize(said))} bytes of text leave too "
            f"little room for this text; the limits are {window:.1f} s and {config.max_text_bytes} bytes; "
            "give a shorter reference"
        )
    if before and not words.startswith(TAGS):  # the text continues the last turn
        script = f"[{turns(before)[-1].speaker}] {words}"
    ends = accumulate((len(part) + 1 for part in parts[:-1]), initial=len(script) - len(words))
    pauses = dict(zip([*ends][1:], given.silences[1:-1], strict=True))
    pieces = cut(script, most, known={turn.speaker for turn in turns(said)}, pauses=pauses)
    if piece_seconds is None and len(pieces) > len(parts):
        raise UsageError(
            f"piece_seconds: without pieces, this model speaks about {seconds:.1f} s between two pauses of a "
            "text; leave piece_seconds out, or write more pauses"
        )
    # the voice does not end a piece that stops inside a sentence, and its babble would be others' prompt
    pieces = [replace(piece, text=ended(piece.text, rules)) for piece in pieces]
    pieces[0] = replace(pieces[0], before=lead)
    pieces[-1] = replace(pieces[-1], after=tail)
    return pieces


def _wanted(piece_seconds: PieceSeconds, window: float) -> float:
    """Return the wanted seconds of a piece. window: in seconds."""
    if piece_seconds is None or piece_seconds == "auto":
        return window / AUTO
    if not 1 <= piece_seconds < float("inf"):
        raise UsageError(f"piece_seconds: {piece_seconds} is not a number >= 1")
    return piece_seconds


def bare(transcript: str) -> str:
    """Prepare a transcript and drop a single tag at its end, so that any piece can follow it."""
    said = prepare(transcript, None)
    *_, last = turns(said)
    return said if speakable(last.words) else said[: last.start].rstrip()


def cut(
    script: str,
    most: Size,
    *,
    known: Collection[str | None] = (),
    pauses: Mapping[int, float] = MappingProxyType({}),
) -> list[DiaPiece]:
    """Cut a prepared script into pieces of at most `most`; each of two anchors is at most ANCHOR times that.

    known: the speakers in the reference. Cuts fall after turns, else sentences, else clauses, else words;
    a word that does not fit is split. The joined pieces equal the script, apart from white space and repeated
    tags; a single tag at the end goes to the last piece.
    pauses: position in the script → seconds of silence, in order; a piece ends at each. If the first piece is
    too short for a voice because of a pause, the next ones are anchors too, up to the size of two.
    """
    said = [turn for turn in turns(script) if speakable(turn.words)]
    end = said[-1].stop
    first = {turn.speaker: turn.start for turn in reversed(said) if turn.speaker not in known}
    voice = VOICE * CHARACTERS_PER_SECOND if pauses and not known else 0  # wanted characters of the anchors
    pieces: list[DiaPiece] = []
    anchors: tuple[int, ...] = ()
    start, ends = 0, [*pauses, end]
    while start < end:
        new = [offset for offset in first.values() if offset >= start]
        limit = ends[bisect_right(ends, start)]
        stop = _stop_with(script, said, start, limit, most, new=new, opening=not known and not pieces)
        text = _piece(script, said, start, stop if stop < end else len(script))
        pieces.append(DiaPiece(text, anchors, after=pauses.get(stop)))
        held = " ".join(pieces[anchor].text for anchor in anchors)
        is_short = characters(held) < voice and most.times(2 * ANCHOR).holds(f"{held} {text}".lstrip())
        if is_short or any(start <= offset < stop for offset in new):
            anchors = (*anchors, len(pieces) - 1)
        start = stop
    return pieces


def _stop_with(
    script: str, said: list[Turn], start: int, limit: int, most: Size, *, new: list[int], opening: bool
) -> int:
    """Choose the end of a piece, no later than `limit`, by the speakers whose voices it sets.

    new: where the speakers that were not heard yet begin.
    opening: nothing was heard before.
    """
    half = most.times(ANCHOR)
    if new and max(new) < limit:  # try one anchor with all new speakers
        stop = _stop(script, said, start, limit, most if opening else half, after=max(new))
        if stop is not None:
            return stop
    ahead = min((stop for stop in new if start < stop < limit), default=limit)
    is_half = start in new and not (opening and len(new) == 1)
    stop = _stop(script, said, start, ahead, half if is_half else most)
    assert stop is not None, "words can always be cut"
    return stop


def _piece(script: str, said: list[Turn], start: int, stop: int) -> str:
    """Return the words from start to stop, after their tag."""
    own = _turn(said, start)
    words = script[start:stop].strip()
    return words if start == own.start else f"[{own.speaker}] {words}"


def _stop_of(turn: Turn) -> int:
    return turn.stop


def _turn(said: list[Turn], stop: int) -> Turn:
    """Find the turn that contains a position."""
    return said[bisect_right(said, stop, key=_stop_of)]


def _stop(
    script: str, said: list[Turn], start: int, end: int, most: Size, *, after: int | None = None
) -> int | None:
    """Choose the end of a piece that begins at `start`, no later than `end`: the best cut that leaves pieces
    of about equal size.

    after: the piece must reach past this position, to a sentence's end or better; returns None if that does
    not fit.
    """
    reach = start + 4 * most.characters + LOOK_BEHIND  # a tag of four characters counts as one
    if end <= reach and most.holds(_piece(script, said, start, end)):
        return end
    fitting = [
        (stop, rank, characters(piece))
        for stop, rank in _stops(script, said, start, min(end, reach))
        if (after is None or (stop > after and rank <= SENTENCE))
        and most.holds(piece := _piece(script, said, start, stop))
    ]
    if not fitting:
        return None if after is not None else _last_that_fits(script, said, start, end, most)
    rest = script[start : min(end, start + 10 * most.characters)]
    size = characters(rest)
    aim = size / max(most.count(rest), round(size / (AIM * most.characters)))
    return min(fitting, key=lambda entry: abs(entry[2] / aim - 1) + _WORSE[entry[1]])[0]


def _stops(script: str, said: list[Turn], start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield (position, rank) of the cuts before `end`: between words of a turn, or at its end."""
    for at in range(bisect_right(said, start, key=_stop_of), len(said)):
        turn = said[at]
        if turn.start >= end:
            break
        if turn.start > start:
            yield turn.start, _TURN
        first = max(start, turn.start + (len(TAGS[0]) if turn.start >= start else 0))
        words = script[first : min(turn.stop, end)]
        for stop, rank in stops(words):
            if any(map(str.isalnum, words[:stop])) and any(map(str.isalnum, words[stop:])):
                yield first + stop, rank


def _last_that_fits(script: str, said: list[Turn], start: int, end: int, most: Size) -> int:
    """Find a cut inside a word, or in text without words."""
    own = _turn(said, start)
    first = start + (len(TAGS[0]) if start == own.start else 0)
    stop = first + 1
    while stop < min(end, own.stop) and most.holds(_piece(script, said, start, stop + 1)):
        stop += 1
    return stop
