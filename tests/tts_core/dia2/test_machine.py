"""The state machine where its golden cases do not go: text tokens that are also the id of a new word."""

import pytest

from tts_core.dia2.machine import StateMachine
from tts_core.dia2.script import Entry

NEW, PAD = 2, 3


@pytest.mark.parametrize(
    ("ahead", "expected"),
    [
        (0, [(NEW, NEW), (6, 6), (NEW, NEW), (4, 4), (PAD, PAD)]),
        (1, [(6, NEW), (4, NEW), (PAD, 8), (PAD, 9), (PAD, PAD)]),
    ],
)
def test_a_token_with_the_id_of_a_new_word_is_shown_as_one(ahead, expected):
    """As in upstream: with lookahead the second stream shows it, and the first goes on at once."""
    entries = [Entry((6, NEW, 4), "a<|im_end|>b", 9), Entry((8, 9), "next", 2)]
    machine = StateMachine(entries, new_word=NEW, pad=PAD, ahead=ahead, initial_padding=0)
    emitted = [machine.step(step, 0) for step in range(len(expected))]
    assert [(made.main, made.second) for made in emitted] == expected
    assert machine.words == [("a<|im_end|>b", 0)]


@pytest.mark.parametrize("ahead", [0, 1, 2])
def test_a_step_needs_the_word_it_takes_and_those_it_looks_ahead_to(ahead):
    """Not one word more, so that growing text is awaited no longer than necessary; breaks are no words."""
    word, pause = Entry((5,), "w", 1), Entry((), "", 4)
    for words in range(5):
        entries = [pause, *[word, pause] * words]
        machine = StateMachine(entries, new_word=NEW, pad=PAD, ahead=ahead, initial_padding=0)
        assert machine.needs_more() == (words < 1 + ahead)
