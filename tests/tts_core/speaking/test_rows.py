"""The book of a running batch: places, rows, and what a step takes."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from tests.tiny.noise import GivenNoise
from tts_core.nn.noise import HostNoise, Noise
from tts_core.speaking.rows import BatchRows, BatchText, Launched, TextInputs, mapped
from tts_core.speaking.running import WAITED


@dataclass(eq=False)
class Text(TextInputs):
    """A text of some positions. lost: its answers fail."""

    positions: int = 0
    rows: int = 1
    rests: bool = False
    lost: bool = False
    sampling: str = ""
    noise: Noise = field(default_factory=lambda: HostNoise(1))
    taken: list[int] = field(default_factory=list)

    def waits(self, text: BatchText) -> bool:
        return self.rests

    def given(self, text: BatchText) -> tuple[int, int]:
        return self.positions, text.steps

    def answer(self, action: int) -> tuple[int, int]:
        if self.lost:
            raise ValueError("lost")
        self.taken.append(action)
        return action, -action


def joined(*texts: Text, room: int = 20) -> BatchRows:
    plan = BatchRows(8, room)
    for slot, text in enumerate(texts):
        plan.join(slot, text)
    return plan


@pytest.mark.parametrize(
    ("leaving", "order", "moved"),
    [
        ([4], [0, 1, 2, 3], {}),
        ([1], [0, 4, 2, 3], {1: 4}),
        ([0, 2, 3], [4, 1], {0: 4}),
        ([0, 4], [3, 1, 2], {0: 3}),
    ],
    ids=str,
)
def test_the_last_texts_close_gaps(leaving: list[int], order: list[int], moved: dict[int, int]) -> None:
    plan = joined(*(Text(positions) for positions in range(5)))
    for slot in leaving:
        plan.leave(slot)
    assert plan.has_gaps
    assert plan.close() == moved
    assert (plan.order, plan.count, plan.has_gaps) == (order, len(order), False)
    assert plan.positions().tolist() == order
    plan.join(7, Text(9))
    assert plan.order == [*order, 7]


def test_places_that_are_slots_stay() -> None:
    plan = BatchRows(3, 20, is_fixed=True)
    plan.join(2, Text(5))
    plan.join(0, Text(6))
    assert plan.begin() == {2: 2, 0: 0}
    plan.leave(0)
    assert plan.begin() == {2: 2}
    assert plan.steps().tolist() == [-1, -1, 0]
    assert plan.positions().tolist() == [0, 0, 5]
    plan.leave(2)
    assert plan.count == 3


def test_rows_of_guidance_follow_the_first_ones() -> None:
    """As many as any text has; without such texts there are none, and places are kept for more."""
    plan = joined(Text(3), Text(4), Text(5, rows=2))
    assert plan.copies == 2
    assert plan.positions().tolist() == [3, 4, 5, 3, 4, 5]
    assert plan.wanted(2) == plan.wanted(8) == 3
    plan.leave(2)
    plan.close()
    assert (plan.copies, plan.wanted(1), plan.wanted(4)) == (1, 2, 4)
    plan.is_exact = True
    assert plan.wanted(4) == 2
    assert plan.positions().tolist() == [3, 4]


def test_a_text_past_its_end_stays_at_the_last_position() -> None:
    plan = joined(Text(18), room=20)
    for _ in range(5):
        plan.begin()
        plan.end()
    assert plan.positions().tolist() == [19]


def test_an_error_of_the_host_is_the_texts() -> None:
    """Its ids are marked, and those of a text whose action is not finite; others go on."""
    texts = Text(), Text(lost=True), Text(), Text(rests=True)
    plan = joined(*texts)
    places = plan.begin()
    answers, failed = plan.answer(np.array([4, 5, -1, 6]))
    assert (answers[0].tolist(), failed) == ([4, -4], [1, 2])
    assert (texts[0].taken, texts[2].taken, texts[3].taken) == ([4], [0], [])
    assert str(texts[1].error) == "lost"
    ids = Launched([], places, failed).ids(np.arange(4).reshape(1, 4, 1), 6)
    assert ids[0, :, 0].tolist() == [0, -1, -1, WAITED, WAITED, WAITED]


def test_numbers_are_drawn_for_texts_that_take_part() -> None:
    texts = Text(noise=HostNoise(3)), Text(noise=HostNoise(4), rests=True)
    plan = joined(*texts)
    plan.begin()
    found = plan.uniform((2,))
    np.testing.assert_array_equal(found[0], HostNoise(3).uniform(0, (2,)))
    assert found[1].tolist() == [0.5, 0.5]
    assert plan.seeds() == ([3, 4], [0, 0])
    texts[1].noise = GivenNoise(1)
    assert plan.seeds() is None


def test_states_may_be_nested() -> None:
    state = (np.array([1]), (np.array([2]), np.array([3])))
    found = mapped(lambda one, other: one + other, state, state)
    assert (found[0].tolist(), [each.tolist() for each in found[1]]) == ([2], [[4], [6]])
