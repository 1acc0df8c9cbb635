"""Slots are used again, launches are read late, and late ids of another text are dropped."""

from __future__ import annotations

import numpy as np

from tts_core.speaking.running import WAITED, Running, RunningBatch
from tts_core.speaking.speech import Slot


class Text(int):
    """A text's number. rows, reads: as of TextInputs."""

    rows = reads = 1

    @classmethod
    def of(cls, number: int, rows: int, reads: int) -> Text:
        one = cls(number)
        one.rows, one.reads = rows, reads
        return one


class Counting(RunningBatch):
    """A batch whose ids are a text's own number and the count of its steps; it cannot read negative ones."""

    def __init__(self, steps: int, ahead: int, together: int = 1):
        self.steps, self.ahead, self.together = steps, ahead, together
        self.calls: list[list[int]] = []  # numbers of the texts of each
        self.texts: dict[int, list[int]] = {}
        self.launches = 0

    @property
    def can_step(self) -> bool:
        return bool(self.texts)

    def join(self, texts: dict[int, int]) -> None:
        assert not texts.keys() & self.texts.keys()
        self.calls.append([*texts.values()])
        if any(text < 0 for text in texts.values()):
            raise ValueError("a text that cannot be read")
        for slot, text in texts.items():
            self.texts[slot] = [text, 0]

    def leave(self, slot: int) -> None:
        del self.texts[slot]

    def launch(self, steps: int) -> np.ndarray:
        self.launches += 1
        ids = np.zeros((steps, 8), np.int64)
        for slot, text in self.texts.items():
            for step in range(steps):
                ids[step, slot] = 100 * text[0] + text[1]
                text[1] += 1
        return ids

    def read(self, launched: np.ndarray) -> np.ndarray:
        return launched


def joined(running: Running, *texts: int) -> list[Slot]:
    slots = [Slot(Text(text)) for text in texts]
    assert running.join(slots) == [None] * len(slots)
    return slots


def test_nothing_runs_without_a_text() -> None:
    batch = Counting(1, 1)
    running = Running(batch, 3)
    assert (running.advance(), running.can_step) == ([], False)
    [a] = joined(running, 1)
    running.advance()
    assert (batch.launches, running.has_launched) == (2, True)
    running.leave(a)
    assert running.advance() == []
    joined(running, 2)
    assert [(slot.inputs, ids.tolist()) for slot, ids in running.advance()] == [(2, [200])]


def test_a_text_takes_the_lowest_free_index() -> None:
    """Captured steps of some models compute the slots up to the last one that is taken."""
    running = Running(Counting(1, 0), 3)
    a, b, c = joined(running, 1, 2, 3)
    running.leave(a)
    running.leave(b)
    [d] = joined(running, 4)
    assert [slot.index for slot in (d, b, c)] == [0, None, 2]


def test_steps_in_which_a_text_took_no_part_are_left_out() -> None:
    batch = Counting(3, 0)
    running = Running(batch, 3)
    a, b = joined(running, 1, 2)
    launch = batch.launch

    def waiting(steps: int) -> np.ndarray:
        ids = launch(steps)
        ids[1:, 0] = ids[:, 1] = WAITED
        return ids

    batch.launch = waiting
    [(slot, ids)] = running.advance()
    assert (slot, ids.tolist(), running.taken) == (a, [100], [a, b])


def test_texts_of_as_many_rows_are_read_together_up_to_a_number_of_positions() -> None:
    batch = Counting(1, 0, together=10)
    running = Running(batch, 8)
    kinds = (1, 4), (2, 3), (1, 6), (1, 1), (1, 30), (2, 3), (1, 9)
    slots = [Slot(Text.of(number, *kind)) for number, kind in enumerate(kinds)]
    assert running.join(slots) == [None] * len(slots)
    assert batch.calls == [[0, 2], [3], [4], [6], [1, 5]]
    assert [slot.index for slot in slots] == [*range(len(slots))]
