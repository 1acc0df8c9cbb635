"""Calls of a product of few rows in which a row's numbers depend on neither its place nor the other rows.

A BLAS has kernels for several numbers of rows, which add in different orders: a row may be rounded otherwise
alone than with others, and otherwise at the end of a call. In calls of whole blocks of rows every row goes
through the same kernel; which blocks those are depends on the library and the CPU, so they are tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

Product = Callable[[np.ndarray], np.ndarray]  # (R, D) float32 → (R, N)
Runs = list[tuple[int, int, int]]  # of texts with as many keys: the first, the one after the last, the keys


@dataclass(frozen=True)
class Calls:
    """Calls of whole blocks. block: rows are padded to a multiple of it.  most: rows of a call."""

    block: int
    most: int

    def padded(self, rows: int) -> int:
        """Return the rows with those that fill the last block."""
        return -(-rows // self.block) * self.block

    def sizes(self, rows: int) -> list[int]:
        """Return the rows of each call, of a whole number of blocks."""
        return [min(self.most, rows - start) for start in range(0, rows, self.most)]


NARROW = (Calls(1, 16), Calls(4, 16), Calls(4, 12), Calls(4, 8))  # a text alone has one or two rows
WIDE = (Calls(8, 32), Calls(12, 48), Calls(16, 48))
FIXED = (Calls(8, 8), Calls(4, 4), Calls(2, 2), Calls(1, 1))  # all calls are alike, each reads the weights
# calls that read the weights once for 16 rows come first
ONE_CALL = tuple(calls for calls in NARROW if calls.most >= 16)
FOR_BATCHES = (*ONE_CALL, *WIDE, *(calls for calls in NARROW if calls not in ONE_CALL), *FIXED)


def independent(product: Product, width: int, calls: Calls) -> bool:
    """Return True if a row gets equal numbers at every place of every number of whole blocks, beside rows
    that equal it and beside random ones.
    """
    random = np.random.default_rng(0)
    row = random.normal(size=(1, width)).astype(np.float32)
    known = product(np.repeat(row, calls.block, axis=0))[:1]
    for count in range(calls.block, calls.most + 1, calls.block):
        every = np.repeat(row, count, axis=0)
        if not (product(every) == known).all():
            return False
        for first in (0, 1):  # strangers at even places, then at odd ones
            mixed, own = every.copy(), np.arange(count) % 2 != first
            mixed[~own] = random.normal(size=(count - own.sum(), width))
            if not (product(mixed)[own] == known).all():
                return False
    return True


def first_independent(products: Sequence[tuple[Product, int]], choices: Sequence[Calls]) -> Calls | None:
    """Return the first of `choices` in which all products, each with its width, have independent rows."""
    for calls in choices:
        if all(independent(product, width, calls) for product, width in products):
            return calls
    return None


def alike(counts: Iterable[int]) -> Runs:
    """Find the runs of texts with equal counts of keys."""
    runs, first = Runs(), 0
    for count, run in groupby(counts):
        last = first + len(list(run))
        runs.append((first, last, count))
        first = last
    return runs
