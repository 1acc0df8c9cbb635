"""Blocks of rows in which a product's rows are independent of each other."""

import numpy as np
import pytest

from tts_core.nn.row_calls import NARROW, Calls, first_independent, independent


def library(kernel: int):
    """A product whose rows get other numbers in the last block of a call, if it is not whole."""

    def product(x: np.ndarray) -> np.ndarray:
        whole = np.arange(len(x)) < len(x) // kernel * kernel
        return x.sum(axis=1, keepdims=True) + np.where(whole, 0, 1e-3)[:, None].astype(np.float32)

    return product


def test_blocks_of_whole_kernels_are_independent() -> None:
    assert independent(library(1), 5, Calls(1, 16))
    assert independent(library(4), 5, Calls(4, 16))
    assert independent(library(4), 5, Calls(8, 16))
    assert not independent(library(4), 5, Calls(1, 16))
    assert not independent(library(6), 5, Calls(4, 16))
    assert not independent(lambda x: x * np.nan, 5, Calls(1, 2))


def test_calls_longer_than_a_library_takes_alike_are_not_taken() -> None:
    def product(x: np.ndarray) -> np.ndarray:
        return library(4)(x) + (len(x) > 8)

    assert first_independent([(product, 5)], NARROW) == Calls(4, 8)


def test_all_products_have_the_same_calls() -> None:
    assert first_independent([(library(1), 5), (library(4), 3)], NARROW) == Calls(4, 16)
    assert first_independent([(library(1), 5), (library(7), 3)], NARROW) is None


@pytest.mark.parametrize(
    ("rows", "sizes"), [(1, [4]), (4, [4]), (15, [12, 4]), (16, [12, 4]), (33, [12, 12, 12])]
)
def test_calls_have_whole_blocks(rows: int, sizes: list[int]) -> None:
    calls = Calls(4, 12)
    assert calls.sizes(calls.padded(rows)) == sizes


def test_a_library_whose_rows_see_their_neighbors_contents_is_seen() -> None:
    def product(x: np.ndarray) -> np.ndarray:
        return x.sum(axis=1, keepdims=True) + (np.diff(x, axis=0, append=x[-1:]) != 0).any(axis=1)[:, None]

    assert not independent(product, 5, Calls(1, 16))
    assert not independent(product, 5, Calls(2, 2))
