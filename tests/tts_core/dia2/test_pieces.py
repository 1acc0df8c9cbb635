"""Exact limits of cutting a script: what just fits, and how far back an end is looked for."""

from __future__ import annotations

import pytest

from tests.tiny.dia2 import tokenizer
from tts_core.dia2.machine import longest_steps
from tts_core.dia2.pieces import Piece, check_each, cut
from tts_core.dia2.reading import read
from tts_core.dia2.script import Entry, Reader
from tts_core.errors import UsageError

READER = Reader.of(tokenizer(), 2, 12.5)
S1, S2 = READER.speakers
STEPS = 7  # of each word here


def script(ends: dict[int, str], count: int = 30) -> list[Entry]:
    """Short words of one speaker. ends: place → the word, or the tag of a turn that begins, there."""
    words = [Entry((5,), ends.get(place, "a"), 1) for place in range(count)]
    words = [one._replace(text="a", tokens=(S2, 5)) if one.text == "[S2]" else one for one in words]
    assert {longest_steps(word) for word in words} == {STEPS}
    return words


def sizes(pieces: list[Piece]) -> list[int]:
    return [len(piece.entries) for piece in pieces]


def test_a_piece_is_as_long_as_it_may_be():
    """Exactly `most` steps are one piece; with a step less the last entry is left for another."""
    entries = script({}, 4)
    assert sizes(cut(READER, entries, 4 * STEPS)) == [4]
    assert sizes(cut(READER, entries, 4 * STEPS - 1)) == [3, 1]


def test_an_entry_as_long_as_a_piece_is_accepted():
    pause = Entry((), "", 30)
    check_each([pause], longest_steps(pause))
    with pytest.raises(UsageError, match="longer than the model's two minutes"):
        check_each([pause], longest_steps(pause) - 1)


@pytest.mark.parametrize("place", range(1, 11))
@pytest.mark.parametrize("mark", ["a.", "[S2]"])
def test_a_turn_or_sentence_ends_a_piece_only_in_its_second_half(mark, place):
    """Of ten words that fit, the piece keeps at least six. place: words before the cut."""
    entries = script({place - 1 if mark == "a." else place: mark})
    [first, *_] = cut(READER, entries, 10 * STEPS)
    assert len(first.entries) == (place if place > 5 else 10)


@pytest.mark.parametrize("place", range(1, 11))
def test_later_pieces_look_back_within_themselves(place):
    """The first piece ends at the tenth word; the second half of the second one begins at its sixth."""
    [first, second, *_] = cut(READER, script({9 + place: "a."}), 10 * STEPS)
    assert len(first.entries) == 10
    assert len(second.entries) == (place if place > 5 else 10)


def test_a_turn_goes_before_a_later_sentence_and_the_last_of_each_is_taken():
    assert sizes(cut(READER, script({6: "[S2]", 7: "[S2]", 8: "a."}), 10 * STEPS))[0] == 7
    assert sizes(cut(READER, script({6: "a.", 8: "a."}), 10 * STEPS))[0] == 9


def test_words_without_an_end_are_cut_where_the_piece_is_full():
    entries = read(READER, "[S1] " + "a " * 25)
    most = sum(map(longest_steps, entries[:10]))
    assert sum(sizes(cut(READER, entries, most))) == 25
    assert all(sum(map(longest_steps, piece.entries)) <= most for piece in cut(READER, entries, most))
