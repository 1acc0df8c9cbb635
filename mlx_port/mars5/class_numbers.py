"""Gumbel numbers for every class of a cell, hashed on the device from the cell's two numbers.

The hash uses integer arithmetic, so that every backend draws the same classes: if rounding changes two
log-probabilities by 1e-6, the larger of two sums changes once in a million cells. In an inverse cumulative
draw, each of a thousand partial sums changes by as much.
"""

from __future__ import annotations

import mlx.core as mx

from tts_core.mars5.diffusion import CELL_STEP, CLASS_STEP, HASH_BITS, LAST_SHIFT, NOISE_BITS, ROUNDS


def hashed(uniform: mx.array, n_classes: int) -> mx.array:
    """Hash numbers of the host into 31 random bits for every class. (2, ...) → (..., K) int32."""
    first, second = (uniform * 2**NOISE_BITS).astype(mx.int32)[..., None]
    classes = mx.arange(n_classes, dtype=mx.int32)
    bits = first + classes * CLASS_STEP  # all products and sums are modulo 2**32
    (shift, factor), (other_shift, other_factor) = ROUNDS
    bits = (bits ^ (bits >> shift)) * factor + second * CELL_STEP
    bits = (bits ^ (bits >> other_shift)) * other_factor
    return bits ^ (bits >> LAST_SHIFT)


def class_gumbel(uniform: mx.array, n_classes: int) -> mx.array:
    """Compute Gumbel numbers. (2, ...) → (..., K) of the same type, at most 21.5; -inf if rounding gives 1.

    Large ones come from small uniform numbers, which are exact: rare classes have their exact probability.
    """
    odd = (hashed(uniform, n_classes) | 1).astype(uniform.dtype)
    return -mx.log(-mx.log1p(odd * -(2.0**-HASH_BITS)))
