"""A Gumbel number for every class of a cell, hashed on the device from the cell's two numbers.

The hash is arithmetic of integers, so that every backend finds the same classes ahead: two log-probabilities
that rounding moves by a millionth change the larger of two sums once in a million cells, while each of the
sums that cumulate a thousand classes is moved by as much.
"""

from __future__ import annotations

import mlx.core as mx

from tts_core.mars5.class_hash import CELL_STEP, CLASS_STEP, HASH_BITS, LAST_SHIFT, NOISE_BITS, ROUNDS


def hashed(uniform: mx.array, n_classes: int) -> mx.array:
    """31 random bits for every class. (2, ...) numbers of a host's noise → (..., K) int32."""
    first, second = (uniform * 2**NOISE_BITS).astype(mx.int32)[..., None]
    classes = mx.arange(n_classes, dtype=mx.int32)
    bits = first + classes * CLASS_STEP  # all products and sums are modulo 2**32
    (shift, factor), (other_shift, other_factor) = ROUNDS
    bits = (bits ^ (bits >> shift)) * factor + second * CELL_STEP
    bits = (bits ^ (bits >> other_shift)) * other_factor
    return bits ^ (bits >> LAST_SHIFT)


def class_gumbel(uniform: mx.array, n_classes: int) -> mx.array:
    """Gumbel numbers. (2, ...) → (..., K) of the same type, 21.5 at the most; -inf where a rounding gives 1.

    Small numbers make the large ones, and are exact: rare classes are drawn as often as they should be.
    """
    odd = (hashed(uniform, n_classes) | 1).astype(uniform.dtype)
    return -mx.log(-mx.log1p(odd * -(2.0**-HASH_BITS)))
