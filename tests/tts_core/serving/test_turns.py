"""Turns: slots are used again, launches are read late, and late draws of another text are dropped."""

from __future__ import annotations

import numpy as np
import pytest

from tts_core.serving.turns import Turns


class Counting:
    """Slots whose draws are a text's own number and the count of its steps."""

    def __init__(self, steps: int, ahead: int):
        self.steps, self.ahead = steps, ahead
        self.texts: dict[int, list[int]] = {}
        self.launches = 0

    def join(self, slot: int, text: int) -> None:
        assert slot not in self.texts
        self.texts[slot] = [text, 0]

    def leave(self, slot: int) -> None:
        del self.texts[slot]

    def launch(self, steps: int) -> np.ndarray:
        self.launches += 1
        drawn = np.zeros((steps, 3), np.int64)
        for slot, text in self.texts.items():
            for step in range(steps):
                drawn[step, slot] = 100 * text[0] + text[1]
                text[1] += 1
        return drawn

    def read(self, launched: np.ndarray) -> np.ndarray:
        return launched


@pytest.mark.parametrize("ahead", [0, 1, 2])
@pytest.mark.parametrize("steps", [1, 3])
def test_each_text_reads_its_own_draws(steps: int, ahead: int) -> None:
    turns: Turns[str] = Turns(Counting(steps, ahead), 3)
    turns.begin("a", 1)
    turns.begin("b", 2)
    heard: dict[str, list[int]] = {"a": [], "b": []}
    for _ in range(4):
        for turn, ids in turns.draws():
            heard[turn] += ids.tolist()
    assert heard == {"a": [*range(100, 100 + 4 * steps)], "b": [*range(200, 200 + 4 * steps)]}
    turns.end("a")
    turns.begin("a", 3)  # the same value, another text, in the same slot
    late = [ids.tolist() for _ in range(ahead + 1) for turn, ids in turns.draws() if turn == "a"]
    assert late == [[*range(300, 300 + steps)]]
    turns.end("nobody")


def test_nothing_runs_without_a_text() -> None:
    slots = Counting(1, 1)
    turns: Turns[str] = Turns(slots, 3)
    assert turns.draws() == []
    turns.begin("a", 1)
    turns.draws()
    assert slots.launches == 2
    turns.end("a")
    assert turns.draws() == []
    turns.begin("b", 2)
    assert [(turn, ids.tolist()) for turn, ids in turns.draws()] == [("b", [200])]


def test_a_text_takes_the_lowest_free_slot() -> None:
    """Captured steps of some models compute the slots up to the last one that is taken."""
    turns: Turns[str] = Turns(Counting(1, 0), 3)
    for turn, text in (("a", 1), ("b", 2), ("c", 3)):
        turns.begin(turn, text)
    for turn in ("a", "b"):
        turns.end(turn)
    turns.begin("d", 4)
    assert [turns.slot(turn) for turn in ("d", "b", "c")] == [0, None, 2]
