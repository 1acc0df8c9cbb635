"""Arrays in pieces, and memory that is used again."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from converters.files.blocks import PIECE, ScratchMemory, all_finite, blocks


@pytest.mark.parametrize(("count", "size", "expected"), [(0, 3, []), (3, 3, [3]), (7, 3, [3, 3, 1])])
def test_pieces_join_to_the_array(count, size, expected):
    array = np.arange(2 * count).reshape(2, count)[:1]
    found = list(blocks(array, size))
    assert [len(piece) for piece in found] == expected
    np.testing.assert_array_equal(np.concatenate([np.zeros(0), *found]), array[0])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, PIECE - 1, PIECE, 2 * PIECE])
def test_one_number_that_is_not_finite(value, place):
    array = np.zeros((1, 2 * PIECE + 1), np.float32)
    assert all_finite(array)
    array[0, place] = value
    assert not all_finite(array)


def test_memory_is_used_again_by_the_same_thread():
    memory = ScratchMemory()
    large, small = memory.array((4, 5)), memory.array((2, 3))
    assert (large.shape, small.shape, small.dtype) == ((4, 5), (2, 3), np.float32)
    assert np.shares_memory(large, small)
    larger = memory.array((21,))
    assert not np.shares_memory(large, larger)
    assert np.shares_memory(larger, memory.array((21, 1)))
    assert memory.array(()).shape == ()
    with ThreadPoolExecutor(1) as pool:
        assert not np.shares_memory(larger, pool.submit(memory.array, (21,)).result())
