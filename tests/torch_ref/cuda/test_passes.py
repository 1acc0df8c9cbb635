"""Division of prompts into padded passes: which rows each reads, and where keys are kept."""

from __future__ import annotations

import numpy as np
import pytest

from torch_ref.cuda.prompts import PromptRows, passes
from tts_core.memory.footprint import LEAST, TOGETHER, read_at_once


def prompts(counts: list[int]) -> list[PromptRows]:
    return [PromptRows(sum(counts[:place]), count, 50 + place) for place, count in enumerate(counts)]


@pytest.mark.parametrize(
    ("counts", "shapes"),
    [
        ([40], [(1, 64)]),
        ([40, 33, 64], [(4, 64)]),
        ([1, 40, 5], [(2, LEAST), (1, 64)]),
        ([60] * 32, [(16, 64)] * 2),
        ([60] * 17, [(16, 64), (1, 64)]),
        ([0, 3, 0], [(1, LEAST)]),
        ([0], []),
        ([TOGETHER, 900], [(1, 1024)] * 2),
        ([TOGETHER + 1, 1500], [(1, 1280), (1, 1536)]),
    ],
    ids=str,
)
def test_shapes(counts: list[int], shapes: list[tuple[int, int]]) -> None:
    """Powers of two, of at most TOGETHER positions; beyond them one prompt by itself."""
    found = [(len(one.spots), len(one.rows)) for one in passes(prompts(counts))]
    assert [(texts, rows // texts) for texts, rows in found] == shapes


def test_every_row_is_read_once_and_kept_in_its_place() -> None:
    random = np.random.default_rng(4)
    given, kept = prompts(random.integers(0, 90, 37).tolist()), dict[int, list[int]]()
    for one in passes(given):
        places, counts = one.spots.T
        for place, count, rows in zip(places, counts, one.rows.reshape(len(places), -1), strict=True):
            if count:
                assert int(place) not in kept
                kept[int(place)] = rows[:count].tolist()
                assert (rows[count:] == rows[count - 1]).all(), "what fills it up is a row of its own"
    assert kept == {one.place: [*range(one.first, one.first + one.count)] for one in given if one.count}


@pytest.mark.parametrize("counts", [[7], [40] * 5, [12, 40, 33], [300] * 9, [1500, 3, 3]], ids=str)
def test_plans_count_the_largest_pass(counts: list[int]) -> None:
    largest = max(len(one.rows) for one in passes(prompts(counts)))
    planned = read_at_once(len(counts), max(counts), "torch-cuda")
    assert largest <= planned
    assert len({*counts}) > 1 or largest == planned
