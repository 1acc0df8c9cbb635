"""MetaVoice's code layouts. Vectors of the original are in tests/golden."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tiny.metavoice import tilted
from tts_core.metavoice.inputs import (
    PADDING,
    by_position,
    most_frames,
    second_stage_rows,
)

RNG = np.random.default_rng(0)
CODES = RNG.integers(0, 1024, (2, 5)).astype(np.int32)
TEXT = np.array([2100, 2200, 2561], np.int32)


@pytest.mark.parametrize("window", [3, 5, 8, 9, 20])
def test_rows_are_padded_or_cut(window: int):
    rows = second_stage_rows(np.array([1100, 1537]), CODES, window)
    whole = np.full((2, 20), PADDING)
    whole[0, :2] = 1100, 1537
    whole[:, 2:7] = CODES
    np.testing.assert_array_equal(rows, whole[:, :window])


def test_by_position_and_tilted_agree_where_nothing_is_out_of_place():
    rows = second_stage_rows(np.array([1100, 1537]), CODES, 12)
    predicted = np.full((6, 12), PADDING)
    predicted[:, 2:7] = RNG.integers(0, 1024, (6, 5))
    every = np.concatenate([rows, predicted])
    text, codes = tilted(every)
    np.testing.assert_array_equal(codes, every[:, 2:7])
    np.testing.assert_array_equal(by_position(every, 2, 5), codes)
    assert text.tolist() == [1100]
    every[4, 0] = 9  # a code in a position of the text: upstream's reading shifts, the other does not
    np.testing.assert_array_equal(by_position(every, 2, 5), codes)
    assert tilted(every)[1][4].tolist() == [9, *codes[4, :4].tolist()]


@pytest.mark.parametrize(
    ("text", "first", "second", "frames"),
    [(100, 2048, 1024, 923), (100, 400, 1024, 150), (101, 400, 1024, 149), (2048, 2048, 1024, -1025)],
)
def test_room_for_frames(text: int, first: int, second: int, frames: int):
    assert most_frames(text, first, second) == frames
