"""A long script in pieces that Dia speaks well, and which of them give the others their voices.

A piece begins with a tag; one that goes on in the middle of a turn repeats the turn's. It is spoken behind
what holds its voices: the caller's reference, if there is one, and its anchors, the pieces in which a speaker
is first heard whom the reference does not hold. Where both speakers are heard soon that is the first piece
alone, else there are two. Pieces depend on anchors, never on each other.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tts_core.dia.config import DiaConfig
from tts_core.dia.options import PieceSeconds
from tts_core.dia.text import (
    TAGS,
    Turn,
    check_bytes,
    check_turns,
    clean,
    prepare,
    speakable,
    tokenize,
    turns,
    with_tag,
)
from tts_core.errors import UsageError
from tts_core.text.sentences import CHARACTERS_PER_SECOND, CLAUSE, LOOK_BEHIND, SENTENCE, WORD, places

AUTO = 4  # as many pieces fill the window at least: anchors, a piece, and patience with both
WHOLE = 4 / 3  # times a piece: a text that is no longer stays whole
ANCHOR = 0.6  # times a piece, for each of two anchors
AIM = 2 / 3  # times a piece: what is wanted; the rest is for sentences that are longer
TEXTS = 2.5  # as many pieces' bytes fit the window of the text

_TAG = re.compile(r"\[S[12]\]")
_TURN = -1  # rank of the end of a turn, better than SENTENCE
_WORSE = {_TURN: 0.0, SENTENCE: 0.2, CLAUSE: 0.7, WORD: 1.2}  # against a difference from the wanted size


@dataclass(frozen=True)
class Piece:
    """text: as it is read, its tag included.  anchors: places of the pieces that it is spoken behind."""

    text: str
    anchors: tuple[int, ...] = ()

    @cached_property
    def tokens(self) -> np.ndarray:
        """(S,) int32."""
        return tokenize(self.text)

    @property
    def seconds(self) -> float:
        """About how long it is when spoken."""
        return characters(self.text) / CHARACTERS_PER_SECOND


@dataclass(frozen=True)
class Size:
    """How long a piece may be: characters that are spoken, bytes as they are read."""

    characters: int
    bytes: int

    def times(self, factor: float) -> Size:
        """So many times as much."""
        return Size(int(factor * self.characters), int(factor * self.bytes))

    def holds(self, text: str) -> bool:
        """Whether a text is no longer."""
        return characters(text) <= self.characters and len(tokenize(text)) <= self.bytes

    def count(self, text: str) -> int:
        """How many such pieces a text makes at the least."""
        return max(1, -(-characters(text) // self.characters), -(-len(tokenize(text)) // self.bytes))


def characters(text: str) -> int:
    """A tag counts as one, for the pause at a change of speakers."""
    return len(text) - 3 * len(_TAG.findall(text))


def read(
    text: str,
    transcript: str | None,
    prompt_frames: int,
    config: DiaConfig,
    frame_rate: float,
    piece_seconds: PieceSeconds,
) -> list[Piece]:
    """The pieces of a text; one that is spoken at once is a single piece, its transcript included.

    transcript, prompt_frames: of the reference. frame_rate: of the codec, in Hz.
    Raises UsageError for a text that cannot be spoken, or not behind this reference.
    """
    window = config.max_frames / frame_rate  # seconds
    if piece_seconds == "auto":
        piece_seconds = window / AUTO
    elif piece_seconds is not None and not 1 <= piece_seconds < float("inf"):
        raise UsageError(f"piece_seconds: {piece_seconds} is not a number >= 1")
    words = clean("text", text)
    script, before, said = with_tag(words), "", ""
    if transcript is not None:
        before, said = with_tag(clean("transcript", transcript)), bare(transcript)
    whole = Piece(f"{before} {words}" if before else script)
    check_turns(whole.text)
    if piece_seconds is None:
        check_bytes(text, words, whole.text, config.max_text_bytes)
        return [whole]
    room = Size(
        int((window - prompt_frames / frame_rate) * CHARACTERS_PER_SECOND),
        config.max_text_bytes - len(tokenize(said)) - 4,  # spaces between, a lone tag at the end
    )
    if len(whole.tokens) <= config.max_text_bytes and characters(script) <= min(
        piece_seconds * CHARACTERS_PER_SECOND * WHOLE, room.characters
    ):
        return [whole]
    check_turns(script)
    most = Size(
        int(min(piece_seconds * CHARACTERS_PER_SECOND, room.characters / AUTO)), int(room.bytes / TEXTS)
    )
    if room.bytes < 1:
        check_bytes(text, words, whole.text, config.max_text_bytes)  # says that the transcript is too long
    if most.characters < CHARACTERS_PER_SECOND or most.bytes < CHARACTERS_PER_SECOND:
        raise UsageError(
            f"prompt: {prompt_frames / frame_rate:.1f} s and {len(tokenize(said))} bytes of text leave too "
            f"little room for this text, the model holds {window:.1f} s and {config.max_text_bytes} bytes; "
            "give a shorter reference"
        )
    if transcript is not None and not words.startswith(TAGS):  # the words go on where it ended
        last = turns(before)[-1].speaker
        script = f"[{last}]{script.removeprefix(TAGS[0])}"
    return cut(script, most, heard={turn.speaker for turn in turns(said)})


def bare(transcript: str) -> str:
    """A transcript as it is read, without a lone tag at its end: any piece may stand behind it."""
    said = prepare(transcript, None)
    *_, last = turns(said)
    return said if speakable(last.words) else said[: last.start].rstrip()


def cut(script: str, most: Size, *, heard: Collection[str | None] = ()) -> list[Piece]:
    """Pieces of a prepared script, none larger than `most`, each of two anchors ANCHOR times that at most.

    heard: the speakers that a reference holds. Cut behind turns, else sentences, else clauses, else words;
    a word that does not fit is cut. Joined, pieces are the script, up to white space and repeated tags; a
    lone tag at the end goes to the last.
    """
    said = [turn for turn in turns(script) if speakable(turn.words)]
    end = said[-1].stop
    first = {turn.speaker: turn.start for turn in reversed(said) if turn.speaker not in heard}
    pieces: list[Piece] = []
    anchors: tuple[int, ...] = ()
    start = 0
    while start < end:
        new = [place for place in first.values() if place >= start]
        alone = not heard and not pieces
        stop = None
        if new:  # everybody who is new, in one anchor
            stop = _stop(script, said, start, end, most if alone else most.times(ANCHOR), behind=max(new))
        if stop is None:
            ahead = min((place for place in new if place > start), default=end)
            half = start in new and not (alone and len(new) == 1)
            stop = _stop(script, said, start, ahead, most.times(ANCHOR) if half else most)
        assert stop is not None, "words can always be cut"
        text = _piece(script, said, start, stop if stop < end else len(script))
        pieces.append(Piece(text, anchors))
        if any(start <= place < stop for place in new):
            anchors = (*anchors, len(pieces) - 1)
        start = stop
    return pieces


def _piece(script: str, said: list[Turn], start: int, stop: int) -> str:
    """The words from start to stop, behind their tag."""
    own = _turn(said, start)
    words = script[start:stop].strip()
    return words if start == own.start else f"[{own.speaker}] {words}"


def _stop_of(turn: Turn) -> int:
    return turn.stop


def _turn(said: list[Turn], place: int) -> Turn:
    """The turn in which a place is."""
    return said[bisect_right(said, place, key=_stop_of)]


def _stop(
    script: str, said: list[Turn], start: int, end: int, most: Size, *, behind: int | None = None
) -> int | None:
    """Where a piece that begins at `start` ends, at `end` at the latest: at the best place that leaves the
    rest in pieces of about the same size.

    behind: the turn there must be among it, up to the end of a sentence at least; None where it does not fit.
    """
    reach = start + 4 * most.characters + LOOK_BEHIND  # a tag of four characters counts as one
    if end <= reach and most.holds(_piece(script, said, start, end)):
        return end
    fitting = [
        (place, rank, characters(piece))
        for place, rank in _places(script, said, start, min(end, reach))
        if (behind is None or (place > behind and rank <= SENTENCE))
        and most.holds(piece := _piece(script, said, start, place))
    ]
    if not fitting:
        return None if behind is not None else _last_that_fits(script, said, start, end, most)
    rest = script[start : min(end, start + 10 * most.characters)]
    size = characters(rest)
    aim = size / max(most.count(rest), round(size / (AIM * most.characters)))
    return min(fitting, key=lambda one: abs(one[2] / aim - 1) + _WORSE[one[1]])[0]


def _places(script: str, said: list[Turn], start: int, end: int) -> Iterator[tuple[int, int]]:
    """(place, rank) before `end` where a piece may end: with words in front of it and behind it in the same
    turn, or at the turn's end.
    """
    for at in range(bisect_right(said, start, key=_stop_of), len(said)):
        turn = said[at]
        if turn.start >= end:
            break
        if turn.start > start:
            yield turn.start, _TURN
        first = max(start, turn.start + (len(TAGS[0]) if turn.start >= start else 0))
        words = script[first : min(turn.stop, end)]
        for place, rank in places(words):
            if any(map(str.isalnum, words[:place])) and any(map(str.isalnum, words[place:])):
                yield first + place, rank


def _last_that_fits(script: str, said: list[Turn], start: int, end: int, most: Size) -> int:
    """A cut inside a word, or of what has no words."""
    own = _turn(said, start)
    first = start + (len(TAGS[0]) if start == own.start else 0)
    stop = first + 1
    while stop < min(end, own.stop) and most.holds(_piece(script, said, start, stop + 1)):
        stop += 1
    return stop
