"""Gumbel numbers for every class of a cell, hashed on the device from the cell's two numbers.

The hash uses integer arithmetic, so that every backend draws the same classes: if rounding changes two
log-probabilities by 1e-6, the larger of two sums changes once in a million cells. In an inverse cumulative
draw, each of a thousand partial sums changes by as much.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tts_core.mars5.diffusion import CELL_STEP, CLASS_STEP, HASH_BITS, LAST_SHIFT, NOISE_BITS, ROUNDS


def hashed(uniform: Tensor, n_classes: int) -> Tensor:
    """Hash numbers of the host into 31 random bits for every class. (2, ...) → (..., K) int32."""
    first, second = (uniform * 2**NOISE_BITS).int()[..., None].unbind()
    classes = torch.arange(n_classes, dtype=torch.int32, device=uniform.device)
    bits = first + classes * CLASS_STEP  # all products and sums are modulo 2**32
    (shift, factor), (other_shift, other_factor) = ROUNDS
    bits = (bits ^ (bits >> shift)).mul_(factor).add_(second * CELL_STEP)
    bits = (bits ^ (bits >> other_shift)).mul_(other_factor)
    return bits ^ (bits >> LAST_SHIFT)


def class_gumbel(uniform: Tensor, n_classes: int) -> Tensor:
    """Compute Gumbel numbers. (2, ...) → (..., K) of the same type, at most 21.5; -inf if rounding gives 1.

    Large ones come from small uniform numbers, which are exact: rare classes have their exact probability.
    """
    odd = (hashed(uniform, n_classes) | 1).to(uniform.dtype)
    return odd.mul_(-(2.0**-HASH_BITS)).log1p_().neg_().log_().neg_()
