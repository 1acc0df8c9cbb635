"""argmax with the same result on every backend."""

from __future__ import annotations

import torch
from torch import Tensor


def first_largest(x: Tensor) -> Tensor:
    """Compute argmax over the last axis, the first of equals. (..., V) → (...) int64; V if a row has NaN.

    torch.argmax is not used: on MPS it is wrong on macOS 27 before torch 2.13.
    """
    places = torch.arange(x.shape[-1], device=x.device)
    best = x.amax(dim=-1, keepdim=True)
    return torch.where(x == best, places, x.shape[-1]).amin(dim=-1)
