"""A Gumbel number for every class of a cell, hashed on the device from the cell's two numbers.

The hash is arithmetic of integers, so that every backend finds the same classes ahead: two log-probabilities
that rounding moves by a millionth change the larger of two sums once in a million cells, while each of the
sums that cumulate a thousand classes is moved by as much.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tts_core.mars5.class_hash import CELL_STEP, CLASS_STEP, HASH_BITS, LAST_SHIFT, NOISE_BITS, ROUNDS


def hashed(uniform: Tensor, n_classes: int) -> Tensor:
    """31 random bits for every class. (2, ...) numbers of a host's noise → (..., K) int32."""
    first, second = (uniform * 2**NOISE_BITS).int()[..., None].unbind()
    classes = torch.arange(n_classes, dtype=torch.int32, device=uniform.device)
    bits = first + classes * CLASS_STEP  # all products and sums are modulo 2**32
    (shift, factor), (other_shift, other_factor) = ROUNDS
    bits = (bits ^ (bits >> shift)).mul_(factor).add_(second * CELL_STEP)
    bits = (bits ^ (bits >> other_shift)).mul_(other_factor)
    return bits ^ (bits >> LAST_SHIFT)


def class_gumbel(uniform: Tensor, n_classes: int) -> Tensor:
    """Gumbel numbers. (2, ...) → (..., K) of the same type, 21.5 at the most; -inf where a rounding gives 1.

    Small numbers make the large ones, and are exact: rare classes are drawn as often as they should be.
    """
    odd = (hashed(uniform, n_classes) | 1).to(uniform.dtype)
    return odd.mul_(-(2.0**-HASH_BITS)).log1p_().neg_().log_().neg_()
