"""Products of a few float32 rows on a CPU, in which a row's numbers do not depend on the other rows.

OpenBLAS adds in other orders for other numbers of rows (on AVX2: 1 to 3, 4, 8, 12), and for the last rows of
a call; in calls of exactly 8 rows it does not. The calls are chosen by trial on the BLAS and CPU that run.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import mlx.core as mx
import numpy as np
from mlx import nn

from tts_core.nn.row_calls import FIXED, FOR_BATCHES, Calls, first_independent

SMALL = 4 * 2**20  # bytes of a weight that is copied by column: OpenBLAS then takes 0.75 of the time


def in_blocks(layer: nn.Linear) -> Callable[[mx.array], mx.array]:
    """Return the layer for any number of rows, computed in whole blocks. (R, D) → (R, N)."""
    transposed = by_column(layer.weight)
    calls = calls_of(*layer.weight.shape)

    def apply(x: mx.array) -> mx.array:
        rows, whole = len(x), calls.padded(len(x))
        if whole > rows:
            x = mx.concatenate([x, _filler(whole - rows, x.shape[1])])
        parts = [x] if whole <= calls.most else mx.split(x, range(calls.most, whole, calls.most))
        found = [part @ transposed for part in parts]
        made = (found[0] if len(found) == 1 else mx.concatenate(found))[:rows]
        return made + layer["bias"] if "bias" in layer else made

    return apply


@cache
def _filler(rows: int, width: int) -> mx.array:
    zeros = mx.zeros((rows, width))
    mx.eval(zeros)  # now: a thread that speaks later may be another
    return zeros


def by_column(weight: mx.array) -> mx.array:
    """Turn a weight, and lay it out so if it is small. (N, D) → (D, N)."""
    return mx.contiguous(weight.T) if weight.nbytes <= SMALL else weight.T


@cache
def calls_of(outputs: int, inputs: int) -> Calls:
    """Choose the calls of a product with weights (outputs, inputs) on this machine."""
    weight = by_column(mx.random.normal((outputs, inputs), key=mx.random.key(0)))

    def product(x: np.ndarray) -> np.ndarray:
        return np.array(mx.array(x) @ weight)

    return first_independent([(product, inputs)], FOR_BATCHES) or FIXED[-1]
