"""Cutting scripts where goldens do not go: exactly at the limit, and between equally good places."""

from __future__ import annotations

import pytest

from tests.tts_core.dia2.test_script import Characters
from tts_core.dia2.machine import longest_steps
from tts_core.dia2.pieces import check_each, cut
from tts_core.dia2.script import Entry, Reader
from tts_core.errors import UsageError

FIRST, SECOND = 1000, 1001
READER = Reader.of(Characters({"[S1]": FIRST, "[S2]": SECOND}), 2, 12.5)
STEPS = 7  # of a short word


def word(text: str, *tag: int) -> Entry:
    made = Entry((*tag, 5), text, 1)
    assert longest_steps(made) == STEPS
    return made


def texts(entries: list[Entry], most: int) -> list[str]:
    return [piece.text for piece in cut(READER, entries, most)]


def test_a_piece_may_fill_all_steps_and_no_more() -> None:
    words = [word("a"), word("b"), word("c"), word("d")]
    assert texts(words, 4 * STEPS) == ["a b c d"]
    assert texts(words, 4 * STEPS - 1) == ["a b c", "d"]
    assert texts(words, 2 * STEPS) == ["a b", "c d"]


def test_a_turn_is_cut_off_only_in_the_second_half() -> None:
    """The place in the middle would leave half of the model's time unused; the next one would not."""
    turn = word("c", SECOND)
    middle = [word("a"), word("b"), turn, word("d"), word("e")]
    assert texts(middle, 4 * STEPS) == ["a b [S2] c d", "e"]
    after = [word("a"), word("b"), word("x"), turn, word("e"), word("f")]
    assert texts(after, 4 * STEPS) == ["a b x", "[S2] c e f"]


def test_an_early_sentence_does_not_end_a_long_piece() -> None:
    early = [word("a."), word("b"), word("c"), word("d"), word("e"), word("f")]
    assert texts(early, 5 * STEPS) == ["a. b c d e", "f"]
    late = [word("a."), word("b"), word("c."), word("d"), word("e"), word("f")]
    assert texts(late, 5 * STEPS) == ["a. b c.", "d e f"]


def test_pieces_after_the_first_have_their_own_second_half() -> None:
    """Half is counted from the piece's own start."""
    words = [word(text) for text in ("a", "b", "c", "d", "e.", "f", "g", "h", "i")]
    assert texts(words, 4 * STEPS) == ["a b c d", "e. f g h", "i"]


def test_an_entry_may_take_all_steps() -> None:
    pause = Entry((), "", 20)
    check_each([pause], 21)
    with pytest.raises(UsageError, match="longer than the model's two minutes"):
        check_each([pause], 20)
