"""Columns of ids for texts of unequal lengths, and the settings of a draw."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tts_core.errors import UsageError
from tts_core.metavoice.sampling import FirstStageSampling, waiting_times
from tts_core.metavoice.tokens import TokenRows, check_room, grouped
from tts_core.nn.noise import HostNoise

END = 9


def rows(*lengths: int, limits: list[int]) -> TokenRows:
    return TokenRows([np.full(length, length) for length in lengths], limits, end=END)


def test_longer_prompts_go_on_where_shorter_ones_have_ended():
    texts = rows(2, 4, limits=[4, 2])
    assert texts.filled == 2
    assert texts.ids.shape == (2, 6)
    assert texts.steps() == [0, None]
    assert texts.steps(ahead=2) == [2, 0]
    for drawn in ([5, END], [6, END], [7, 1], [8, 2]):
        assert not texts.done
        texts.accept(np.array(drawn))
    assert texts.done
    assert [ids.tolist() for ids in texts.sequences()] == [[2, 2, 5, 6, 7, 8], [4, 4, 4, 4, 1, 2]]


def test_a_row_that_has_ended_stays_ended():
    texts = rows(1, 1, limits=[3, 4])
    texts.accept(np.array([END, 3]))
    assert texts.steps() == [None, 1]
    for _ in range(3):
        texts.accept(np.array([5, 3]))
    assert texts.done
    assert texts.ids.tolist() == [[1, END, END, END, END], [1, 3, 3, 3, 3]]
    assert [ids.tolist() for ids in texts.sequences()] == [[1, END], [1, 3, 3, 3, 3]]
    assert texts.sequences()[0].dtype == np.int32


def test_no_step_is_behind_its_limit():
    assert rows(3, limits=[2]).steps(ahead=1) == [1]
    assert rows(3, limits=[2]).steps(ahead=2) == [None]


@pytest.mark.parametrize(
    ("lengths", "limits", "message"),
    [
        ([3, 4], [2, 2], "text 2: 4 ids of text and 2 of audio are more than the model's 5"),
        ([3, 0], [2, 2], "text 2: no ids"),
        ([3], [0], "text 1: a limit of 0"),
    ],
)
def test_what_has_no_room(lengths: list[int], limits: list[int], message: str):
    with pytest.raises(UsageError, match=message):
        check_room([np.zeros(length) for length in lengths], limits, 5)


def test_groups_are_of_like_length():
    assert grouped([np.zeros(length) for length in (5, 1, 4, 2, 3)], 2) == [[1, 3], [4, 2], [0]]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"cfg_scale": -1.0}, "cfg_scale: -1.0 is not a number >= 0"),
        ({"cfg_scale": float("nan")}, "cfg_scale"),
        ({"cfg_scale": 0.5, "top_p": None, "rule": "slow"}, "cfg_scale: 0.5 is not a number >= 1"),
        ({"text_cfg_scale": 2.0}, "needs the slow rule"),
        ({"text_cfg_scale": 0.5, "rule": "slow"}, "text_cfg_scale: 0.5"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": 0.0, "rule": "slow"}, "temperature"),
        ({"top_p": 1.1}, "top_p"),
        ({"top_k": 0}, "top_k"),
        ({"top_k": 5, "rule": "slow"}, "takes only one of them"),
        ({"rule": "other"}, "neither fast nor slow"),
    ],
)
def test_settings_are_checked(given: dict[str, Any], message: str):
    with pytest.raises(UsageError, match=message):
        FirstStageSampling(**given)


@pytest.mark.parametrize(
    ("given", "count"),
    [
        ({}, 2),
        ({"cfg_scale": 1.0}, 1),
        ({"cfg_scale": 1.0, "rule": "slow"}, 1),
        ({"text_cfg_scale": 1.5, "rule": "slow"}, 3),
        ({"cfg_scale": 1.0, "text_cfg_scale": 1.5, "rule": "slow"}, 3),
    ],
)
def test_rows_that_a_text_needs(given: dict[str, Any], count: int):
    assert FirstStageSampling(**given).rows == count


def test_waiting_times_are_exponential():
    times = waiting_times(HostNoise(2), 0, (20000,))
    assert times.dtype == np.float32
    assert times.min() > 0
    assert abs(times.mean() - 1) < 0.03
    assert abs((times > 1).mean() - np.exp(-1)) < 0.015
    assert not np.array_equal(times, waiting_times(HostNoise(2), 1, (20000,)))
